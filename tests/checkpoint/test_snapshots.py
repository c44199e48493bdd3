"""Snapshots: of which steps they are, and that a folder of weights alone is trusted no more than a checkpoint."""

import shutil
from pathlib import Path

import pytest
import torch

from pellucid.checkpoint.run_directory import find_step_directory, keep_last_and_best, locked, run_of, steps_in
from pellucid.checkpoint.snapshots import discard_snapshots_after, snapshot_steps, write_snapshot
from pellucid.checkpoint.step_directory import SNAPSHOT_FILES, read_checkpoint, write_checkpoint
from pellucid.errors import CheckpointError
from tiny_checkpoint import TINY_CHECKPOINT, tiny_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Checkpoints of steps 10 and 20, snapshots of steps 0, 3 and 20."""
    for step in (10, 20):
        write_checkpoint(tmp_path, tiny_checkpoint(step=step))
    for step in (0, 3, 20):
        write_snapshot(tmp_path, tiny_checkpoint(step=step))
    return tmp_path


def test_the_steps_of_snapshots_are_both_ends_and_equal_ratios_between():
    assert snapshot_steps(1024, 7) == (0, 1, 4, 16, 64, 256, 1024)
    assert snapshot_steps(4200, 12) == (0, 1, 2, 5, 12, 28, 65, 150, 345, 794, 1826, 4200)
    assert (snapshot_steps(50, 0), snapshot_steps(50, 1), snapshot_steps(50, 2)) == ((), (50,), (0, 50))


def test_there_are_as_many_different_steps_as_asked_if_there_are_so_many():
    for n_steps in (1, 2, 3, 7, 20, 100, 1300, 100_000):
        for count in range(2, 40):
            steps = snapshot_steps(n_steps, count)
            assert len(steps) == min(count, n_steps + 1)
            assert list(steps) == sorted(set(steps))
            assert (steps[0], steps[-1]) == (0, n_steps)


def test_a_snapshot_is_a_checkpoint_without_what_training_alone_needs(run: Path):
    directory = run / "snapshots/step-00000003"
    assert {path.name for path in directory.iterdir()} == {*SNAPSHOT_FILES, "manifest.json"}
    snapshot = read_checkpoint(directory)
    assert snapshot.is_snapshot
    assert not read_checkpoint(run / "step-00000010").is_snapshot
    assert torch.equal(snapshot.model["weight"], TINY_CHECKPOINT.model["weight"])
    assert (snapshot.state.step, snapshot.tokenizer_json) == (3, TINY_CHECKPOINT.tokenizer_json)


@pytest.mark.parametrize("name", [*SNAPSHOT_FILES, "manifest.json"])
def test_a_changed_byte_or_a_missing_file_of_a_snapshot_is_refused(run: Path, name: str):
    file = run / "snapshots/step-00000003" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(file.parent)
    file.unlink()
    with pytest.raises(CheckpointError, match=f"missing.*{name}"):
        read_checkpoint(file.parent)


def test_a_checkpoint_that_lost_its_moments_and_generators_is_damaged_and_no_snapshot(run: Path):
    for name in ("optimizer.safetensors", "rng.safetensors"):
        (run / "step-00000010" / name).unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(run / "step-00000010")


def test_a_step_names_a_checkpoint_or_else_a_snapshot(run: Path):
    assert find_step_directory(run, "20") == run / "step-00000020"
    assert find_step_directory(run, "3") == run / "snapshots/step-00000003"
    assert find_step_directory(run / "snapshots/step-00000003", "best").name == "step-00000003"
    assert {run_of(find_step_directory(run, which)) for which in ("0", "10", "latest")} == {run}
    with pytest.raises(CheckpointError, match="use best, latest or a step: 0, 3, 10, 20"):
        find_step_directory(run, "4")


def test_a_run_that_has_only_snapshots_so_far_names_them(run: Path):
    for step in (10, 20):
        shutil.rmtree(run / f"step-{step:08d}")
    with pytest.raises(CheckpointError, match="no checkpoint here; it has snapshots: --checkpoint 0, 3, 20"):
        find_step_directory(run, "best")


def test_no_save_deletes_a_snapshot_and_a_resume_deletes_later_ones(run: Path):
    keep_last_and_best(run, keep_last=1)
    assert (steps_in(run), steps_in(run / "snapshots")) == ([10, 20], [0, 3, 20])
    discard_snapshots_after(run, 10)
    assert steps_in(run / "snapshots") == [0, 3]


def test_what_a_kill_left_among_snapshots_is_removed(run: Path):
    for name in (".tmp-step-00000040", ".trash-step-00000005"):
        (run / "snapshots" / name).mkdir()
    with locked(run):
        assert sorted(path.name for path in (run / "snapshots").iterdir()) == [f"step-{i:08d}" for i in (0, 3, 20)]

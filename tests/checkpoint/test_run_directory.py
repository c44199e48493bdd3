"""Which checkpoints a run has, keeps and means; and one process at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.checkpoint.ownership import LOCK
from pellucid.checkpoint.run_directory import (
    NAME_A_RUN,
    find_step_directory,
    keep_last_and_best,
    locked,
    no_intact_checkpoint,
    steps_in,
)
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import _damaged, write_checkpoint
from pellucid.config.shipped import DEMO
from pellucid.errors import CheckpointError, InputOutputError, RunInUseError
from tiny_checkpoint import tiny_checkpoint


def write_run(run_dir: Path, losses: dict[int, float | None]) -> None:
    for step, loss in losses.items():
        write_checkpoint(run_dir, tiny_checkpoint(step=step, val_loss=loss))


def test_the_last_and_the_best_are_kept(tmp_path: Path):
    write_run(tmp_path, {10: 3.0, 20: 1.0, 30: None, 40: 2.0, 50: 2.5})
    assert find_step_directory(tmp_path, "best").name == "step-00000020"
    keep_last_and_best(tmp_path, keep_last=2)
    assert steps_in(tmp_path) == [20, 40, 50]
    assert not list(tmp_path.glob(".trash-*"))


def test_latest_best_and_a_number_name_a_checkpoint(tmp_path: Path):
    write_run(tmp_path, {10: 1.0, 20: 2.0})
    assert find_step_directory(tmp_path, "latest").name == "step-00000020"
    assert find_step_directory(tmp_path, "best").name == "step-00000010"
    assert find_step_directory(tmp_path, "10").name == "step-00000010"
    assert find_step_directory(tmp_path / "step-00000010", "latest").name == "step-00000010"


@pytest.mark.parametrize("which", ["30", "newest", "-1", "1.0", "²"])
def test_an_unknown_checkpoint_is_answered_with_the_known_ones(tmp_path: Path, which: str):
    write_run(tmp_path, {10: 1.0, 20: 2.0})
    with pytest.raises(CheckpointError, match=r"use best, latest or a step: 10, 20"):
        find_step_directory(tmp_path, which)


def test_a_folder_without_checkpoints_and_no_folder_are_told_apart(tmp_path: Path):
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        find_step_directory(tmp_path, "latest")
    with pytest.raises(CheckpointError, match="no such run"):
        find_step_directory(tmp_path / "absent", "latest")


def test_the_best_is_said_to_be_so_only_where_it_is_not_the_newest(tmp_path: Path, caplog):
    caplog.set_level("INFO", logger="pellucid")
    write_run(tmp_path, {1000: 2.0, 1200: 1.0})
    find_step_directory(tmp_path, "best")
    assert caplog.messages == []
    write_run(tmp_path, {1400: 1.5})
    assert find_step_directory(tmp_path, "best").name == "step-00001200"
    assert caplog.messages == [f"step 1,200, the best of {tmp_path}; --checkpoint latest for the newest"]


def test_where_nothing_was_evaluated_the_newest_is_taken(tmp_path: Path):
    write_run(tmp_path, {10: None, 20: None})
    assert find_step_directory(tmp_path, "best").name == "step-00000020"


def test_where_no_checkpoint_is_whole_there_is_no_best(tmp_path: Path):
    write_run(tmp_path, {10: 1.0})
    (tmp_path / "step-00000010/state.json").unlink()
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        find_step_directory(tmp_path, "best")


def test_the_shipped_demo_is_not_trained_again_where_it_was_installed():
    assert no_intact_checkpoint(DEMO).fix == "install Pellucid again"
    assert no_intact_checkpoint(Path("run")).fix == "train again with --overwrite"
    with pytest.raises(CheckpointError, match="damaged: .*; install Pellucid again"):
        raise _damaged(DEMO / "step-00004200", "cut off")


def test_where_only_snapshots_are_whole_the_newest_of_them_is_named(tmp_path: Path):
    write_run(tmp_path, {10: 1.0, 20: 1.0})
    for step in (0, 10, 20):
        write_snapshot(tmp_path, tiny_checkpoint(step=step))
    for damaged in ("step-00000010", "step-00000020", "snapshots/step-00000020"):
        (tmp_path / damaged / "state.json").unlink()
    with pytest.raises(CheckpointError) as caught:
        find_step_directory(tmp_path, "best")
    snapshot = tmp_path / "snapshots/step-00000010"
    assert caught.value.fix == f"use {snapshot}, an intact snapshot, or begin another run with start_from={snapshot}"
    assert find_step_directory(snapshot, "best") == snapshot


def test_a_run_named_without_its_folder_or_with_a_slip_is_suggested(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("checkpoints/fables").mkdir(parents=True)
    write_run(Path("checkpoints/fables"), {10: 1.0})
    Path("checkpoints/fables/config.yaml").touch()
    for named, answer in [
        ("fables", "no such run; did you mean checkpoints/fables?"),
        ("fabels", "no such run; did you mean checkpoints/fables?"),
        ("checkpoints/fable", "no such run; did you mean checkpoints/fables?"),
        ("checkpoints", "no checkpoint here; runs in it: checkpoints/fables"),
        ("checkpoints/fables/config.yaml", "no such run; did you mean checkpoints/fables?"),
        ("checkpoints/fables/step-00000010/state.json", "no such run; did you mean checkpoints/fables/step-00000010?"),
        ("FABELS", "no such run; did you mean checkpoints/fables?"),
        ("Demo", "no such run; did you mean demo?"),
        ("dmeo", "no such run; did you mean demo?"),
        ("other", f"no such run; {NAME_A_RUN}"),
    ]:
        with pytest.raises(CheckpointError) as caught:
            find_step_directory(Path(named), "best")
        assert str(caught.value).replace("\\", "/") == f"{named}: {answer}"


def test_a_second_process_is_turned_away_until_the_first_ends(tmp_path: Path):
    """The first takes the lock as `locked` does, without PyTorch, which takes seconds to import."""
    hold = "import sys, filelock\n"
    hold += "with filelock.FileLock(sys.argv[1]): print('locked', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path / LOCK)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "locked\n"
    with pytest.raises(RunInUseError, match="another process trains in this folder"), locked(tmp_path):
        pass
    first.kill()
    first.communicate()
    with locked(tmp_path):
        pass


def test_what_a_killed_save_left_is_swept_away_under_the_lock(tmp_path: Path):
    for name in (".tmp-step-00000001", ".trash-step-00000002", "step-00000003"):
        (tmp_path / name).mkdir()
    with locked(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000003"]


def test_a_run_directory_that_cannot_be_made_is_an_input_output_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputOutputError, match="choose another folder with --run-dir"),
        locked(tmp_path / "file"),
    ):
        pass

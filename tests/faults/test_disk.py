"""F6, F7, F8: a disk that is full, refuses or may not be written."""

import shutil
import subprocess
from functools import partial

import pytest

import strikes
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name
from processes import command_line
from reference_run import Trace, leftovers, trace
from tiny_run import assert_one_error_line

CHECKPOINT_BYTES = 57_000


@pytest.fixture(scope="session")
def mounts() -> None:
    """Skips where an ordinary user may not mount a small disk of his own."""
    script = "mkdir -p disk && mount -t tmpfs -o size=64k tmpfs disk"
    command = ["sh", "-c", f"cd $(mktemp -d) && unshare --user --map-root-user --mount sh -c '{script}'"]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this system allows no mount namespaces (unshare --user --mount)")


@pytest.mark.usefixtures("mounts")
def test_f6_a_full_disk_ends_the_run_and_room_lets_it_go_on(fault_place, reference: Trace, tmp_path, tally, soak):
    """Disks of 10 to 100 % of a checkpoint, and of several; then the same disk with room."""
    for percent in [*range(10, 101, 10), 130, 180, 250, 320, 400, 470] if soak else [60, 320]:
        with tally.attempt(f"{percent} % of a checkpoint"):
            place = tmp_path / f"disk-{percent}"
            place.mkdir()
            for name in ("corpus.txt", "reference.yaml"):
                shutil.copy(fault_place / name, place)
            shutil.copytree(fault_place / "data", place / "data")
            (place / "disk").mkdir()
            fault = partial(strikes.full_then_roomy, place, CHECKPOINT_BYTES * percent // 100)
            done = command_line(place, "train", "reference.yaml", "--run-dir", "disk/run", fault=fault)
            first = (place / "first-errors").read_text()
            assert (place / "first-exit-code").read_text() == "5", first
            errors = [line for line in first.splitlines() if line.startswith("error: ")]
            assert len(errors) == 1, first
            assert "Traceback" not in first
            assert leftovers(place / "full/run") == []
            for step in steps_in(place / "full/run"):
                read_checkpoint(place / "full/run" / step_name(step))
            assert bool(steps_in(place / "full/run")) == (percent > 150)
            assert done.exit_code == 0, done
            assert trace(place / "roomy/run") == reference


@pytest.mark.usefixtures("mounts")
def test_f8_a_read_only_disk_is_told_before_anything_is_done(fault_place, tmp_path):
    for name in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / name, tmp_path)
    (tmp_path / "disk").mkdir()
    fault = partial(strikes.read_only, tmp_path / "disk")
    done = command_line(tmp_path, "train", "reference.yaml", "--run-dir", "disk/run", fault=fault)
    assert_one_error_line(done, 5, "disk/run: cannot be written: Read-only file system", "--run-dir")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("run_dir", "reason"),
    [("corpus.txt", "File exists"), ("corpus.txt/run", "Not a directory"), ("x" * 300, "File name too long")],
)
def test_f8_a_place_that_is_no_folder_is_told_before_anything_is_done(fault_place, tmp_path, run_dir, reason):
    for name in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / name, tmp_path)
    done = command_line(tmp_path, "train", "reference.yaml", "--run-dir", run_dir)
    assert_one_error_line(done, 5, f"cannot be written: {reason}", "choose another folder with --run-dir")
    assert not (tmp_path / "data").exists()


def test_f8_missing_parents_are_made(fault_place, tmp_path):
    done = command_line(fault_place, "train", "reference.yaml", "train.steps=2", "--run-dir", tmp_path / "a/b/c")
    assert done.exit_code == 0
    assert steps_in(tmp_path / "a/b/c") == [2]


@pytest.mark.parametrize("n_bytes", [12_000, 20_000])
def test_f7_a_limit_on_the_size_of_files_is_as_a_full_disk(fault_place, reference: Trace, n_bytes):
    """RLIMIT_FSIZE: at 12,000 bytes no weights can be written, at 20,000 no moments."""
    run = fault_place / f"limited-{n_bytes}"
    arguments = ["train", "reference.yaml", "--run-dir", run.name]
    done = command_line(fault_place, *arguments, fault=partial(strikes.small_files_only, n_bytes))
    assert_one_error_line(done, 5, "step-00000005: checkpoint not saved: File too large")
    assert steps_in(run) == leftovers(run) == []
    assert command_line(fault_place, *arguments, "--resume").exit_code == 0
    assert trace(run) == reference


def test_f7_an_error_while_a_snapshot_is_written_ends_the_run_as_one_in_a_save(fault_place):
    run = fault_place / "error-in-snapshot"
    arguments = ["train", "reference.yaml", "train.steps=2", "checkpoint.snapshots=3", "--run-dir", run.name]
    fault = partial(strikes.at_point, strikes.input_output_error, "write config.yaml", 2)
    done = command_line(fault_place, *arguments, fault=fault)
    assert_one_error_line(done, 5, "snapshots/step-00000001: checkpoint not saved: Input/output error")
    assert steps_in(run / "snapshots") == [0]
    assert leftovers(run / "snapshots") == []
    assert command_line(fault_place, *arguments, "--resume").exit_code == 0
    assert steps_in(run / "snapshots") == [0, 1, 2]


def test_f7_an_input_output_error_at_every_point_of_a_save(fault_place, reference: Trace, beginning, tally, soak):
    """Older checkpoints stay byte for byte; one that cannot be deleted is a warning, all else is exit 5."""
    points = beginning.around_a_save()[1:-1]
    for nth, name in points if soak else [each for each in beginning.ends_around_a_save() if each in points]:
        with tally.attempt(f"error at {name}"):
            run = fault_place / f"error-at-{nth}"
            beginning.copy_to(run)
            arguments = ["train", "reference.yaml", "--run-dir", run.name, "--resume"]
            fault = partial(strikes.at_point, strikes.input_output_error, "*", nth)
            done = command_line(fault_place, *arguments, fault=fault)
            if name in ("rename to trash", "delete trash"):
                assert done.exit_code == 0, done
                assert "warning: " in done.stderr
                assert "not deleted: Input/output error" in done.stderr
            else:
                assert_one_error_line(done, 5, "Input/output error")
                assert set(steps_in(run)) - {25} == {10, 15, 20}
                for step in steps_in(run):
                    read_checkpoint(run / step_name(step))
                assert [name for name in leftovers(run) if not name.startswith(".trash")] == []
            assert command_line(fault_place, *arguments, "--resume").exit_code == 0
            assert trace(run) == reference
            assert leftovers(run) == []

"""F33: a log that was damaged or edited is said to be, is kept, and no row of it is lost in silence."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from damage import flip
from pellucid.checkpoint.run_directory import require_logs
from pellucid.checkpoint.step_directory import read_state, step_name
from pellucid.errors import CheckpointError
from pellucid.training.logs import cut_back_logs, samples_until
from pellucid.training.metrics import read_rows, row_in
from processes import command_line
from reference_run import Trace, trace
from tiny_run import assert_one_error_line

LOGS = ("metrics.jsonl", "samples.md")


@pytest.fixture
def run(fault_place: Path, reference: Trace, tmp_path: Path) -> Path:
    """A copy of the reference run as a kill after step 25 might have left it: with rows that it will write again."""
    for name in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / name, tmp_path)
    shutil.copytree(fault_place / "data", tmp_path / "data")
    shutil.copytree(fault_place / "undisturbed", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / step_name(30))
    return tmp_path / "run"


def resume(run: Path):
    return command_line(run.parent, "train", "reference.yaml", "--run-dir", run.name, "--resume")


def lines_of(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def flipped(log: Path) -> None:
    flip(log, sum(map(len, lines_of(log)[:3])) + 1, bit=0)  # "step" of the fourth row; in samples.md, a word


def without_a_line(log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:4] + lines[5:]))


def swapped(log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[:2], lines[4], lines[3], lines[2], *lines[5:]]))


def changed(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b"0", b"1", 1))


def cut(log: Path) -> None:
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def emptied(log: Path) -> None:
    log.write_bytes(b"")


DAMAGES = [flipped, without_a_line, swapped, changed, cut, emptied]


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_f33_a_damaged_log_is_kept_and_what_can_be_read_goes_on(run, caplog, name: str, damage: Callable):
    damage(run / name)
    damaged = (run / name).read_bytes()
    legible = {row["step"] for line in lines_of(run / name) if (row := row_in(line)) and row["step"] <= 25}
    cut_back_logs(run, read_state(run / step_name(25)), 25)
    [warning] = caplog.messages
    assert warning.startswith(f"{run / name}: changed since step-00000025 was saved; ")
    assert f"the original is kept as {name}.damaged; " in warning
    assert (run / f"{name}.damaged").read_bytes() == damaged
    if name == "metrics.jsonl":
        assert [row["step"] for row in read_rows(run / name)] == sorted(legible)


def test_f33_a_run_whose_log_is_damaged_is_the_same_run(run, reference: Trace):
    whole = read_rows(run / "metrics.jsonl")
    flipped(run / "metrics.jsonl")
    done = resume(run)
    assert done.exit_code == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if "metrics.jsonl.damaged" in line]
    assert warning.startswith("warning: run/metrics.jsonl: changed since step-00000025 was saved")
    assert trace(run).digest == reference.digest
    assert trace(run).losses == (*reference.losses[:3], *reference.losses[4:])
    assert len(read_rows(run / "metrics.jsonl")) == len(whole) - 1
    assert command_line(run.parent, "verify", "run").exit_code == 0


@pytest.mark.parametrize("name", LOGS)
def test_f33_a_log_that_is_gone_is_missed(run, caplog, name: str):
    (run / name).unlink()
    cut_back_logs(run, read_state(run / step_name(25)), 25)
    assert caplog.messages == [f"{run / name}: missing, and it was there when step-00000025 was saved"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
@pytest.mark.parametrize("name", LOGS)
def test_f33_a_pipe_in_the_place_of_a_log_is_not_waited_for(run, name: str):
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(OSError, match="is not a regular file"):
        cut_back_logs(run, read_state(run / step_name(25)), 25)


def test_f33_samples_are_cut_back_whatever_ends_their_lines():
    for end in (b"\n", b"\r\n"):
        lines = [b"## After 5 steps" + end, b"> a" + end, b"## After 10 steps" + end]
        assert samples_until(5, lines) == lines[:2]


def test_f33_a_heading_with_a_number_that_no_step_has_is_a_line_like_another():
    lines = [b"## After 5 steps\n", b"## After " + b"9" * 5_000 + b" steps\n"]
    assert samples_until(5, lines) == lines


def test_f33_every_flipped_bit_is_noticed(run, tally, soak):
    chance, state = random.Random(0), read_state(run / step_name(25))
    require_logs(run, state)
    for name in LOGS:
        for position in chance.sample(range(state.logs[name].bytes), state.logs[name].bytes if soak else 50):
            bit = chance.randrange(8)
            with tally.attempt(f"{name}, bit {bit} of byte {position}"):
                flip(run / name, position, bit)
                with pytest.raises(CheckpointError, match=f"{name}: changed since step-00000025 was saved"):
                    require_logs(run, state)
                flip(run / name, position, bit)


def test_f33_verify_tells_of_a_damaged_log(run):
    flipped(run / "metrics.jsonl")
    assert_one_error_line(command_line(run.parent, "verify", "run"), 4, "run: metrics.jsonl: changed", "--resume")


def test_f33_a_second_damage_overwrites_nothing(run):
    (run / "metrics.jsonl.damaged").write_text("of the first time")
    flipped(run / "metrics.jsonl")
    cut_back_logs(run, read_state(run / step_name(25)), 25)
    assert (run / "metrics.jsonl.damaged").read_text() == "of the first time"
    assert (run / "metrics.jsonl.damaged-2").exists()


@pytest.mark.parametrize("damage", [None, flipped], ids=["whole", "damaged"])
def test_f33_a_checkpoint_that_does_not_know_its_logs_finds_what_cannot_be_read(run, caplog, damage: Callable | None):
    """As older versions wrote it. What is damaged and what a kill cut off differ in whether rows follow."""
    as_before = read_state(run / step_name(25)).model_copy(update={"logs": {}})
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 31, "trai')
    if damage:
        damage(run / "metrics.jsonl")
    cut_back_logs(run, as_before, 25)
    assert len(caplog.messages) == (damage is not None)
    assert [row["step"] for row in read_rows(run / "metrics.jsonl")] == [
        s for s in range(1, 26) if not damage or s != 4
    ]
    assert (run / "samples.md").read_text().count("## After") == 2

"""A run that is given another number of steps goes on as if it had been planned so, or says why it cannot."""

from pathlib import Path
from shutil import rmtree

import pytest

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import TENSOR_FILES
from pellucid.training.metrics import read_rows

WSD = "schedule={type: warmup_stable_decay, warmup_steps: 2, decay_fraction: 0.3}"
CONSTANT = "schedule={type: constant, warmup_steps: 2}"
COSINE = "schedule={type: cosine, warmup_steps: 2}"
QUICK = ("evaluation.every_steps=10", "sample.every_steps=40", "checkpoint.keep_last=1", "checkpoint.every_steps=50")


def assert_same_end(place: Path, a: str, b: str, step: int) -> None:
    for name in TENSOR_FILES:
        files = (place / run / f"step-{step:08d}" / name for run in (a, b))
        assert len({file.read_bytes() for file in files}) == 1, name
    losses = (
        [(row["step"], row["train_loss"], row.get("val_loss")) for row in read_rows(place / run / "metrics.jsonl")]
        for run in (a, b)
    )
    assert [*next(losses)] == [*next(losses)]


def refused(result, *words: str) -> None:
    assert result.exit_code == 4, result
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    for word in words:
        assert word in line


@pytest.mark.parametrize(("schedule", "went_on_from"), [(CONSTANT, 20), (WSD, 14)])
def test_a_finished_run_of_20_steps_made_40_equals_a_run_of_40(workplace: Path, pellucid, schedule, went_on_from):
    """Killed once between. Of a decaying one the checkpoint before the decay is kept, however few are."""
    train = ("train", "tiny.yaml", schedule, *QUICK)
    assert pellucid(*train, "train.steps=40", "--run-dir", "whole").exit_code == 0
    assert pellucid(*train, "train.steps=20", "--run-dir", "more").exit_code == 0
    assert went_on_from in steps_in(workplace / "more")
    longer = pellucid(*train, "train.steps=40", "--run-dir", "more", "--resume")
    assert longer.exit_code == 0, longer
    assert f"at step {went_on_from}" in longer.stderr
    assert ("deleted: the checkpoints of 20" in longer.stderr) == (went_on_from == 14)
    assert_same_end(workplace, "whole", "more", 40)


def test_a_kill_between_changes_nothing(workplace: Path, pellucid, monkeypatch):
    """Just after the first update that goes on another way: nothing of the old end is taken for the new run."""
    from pellucid.training.session import Session

    train = ("train", "tiny.yaml", WSD, *QUICK)
    assert pellucid(*train, "train.steps=40", "--run-dir", "whole").exit_code == 0
    assert pellucid(*train, "train.steps=20", "--run-dir", "more").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_report", lambda self, update, stop, bar: (_ for _ in ()).throw(KeyboardInterrupt))
        assert pellucid(*train, "train.steps=40", "--run-dir", "more", "--resume").exit_code != 0
    assert steps_in(workplace / "more")[-1] == 14
    assert pellucid(*train, "train.steps=40", "--run-dir", "more", "--resume").exit_code == 0
    assert_same_end(workplace, "whole", "more", 40)


def test_fewer_steps_than_planned_and_more_than_made_equal_a_run_of_so_many(workplace: Path, pellucid):
    train = ("train", "tiny.yaml", WSD, *QUICK, "checkpoint.keep_last=9", "checkpoint.every_steps=5")
    assert pellucid(*train, "train.steps=20", "--run-dir", "whole").exit_code == 0
    assert pellucid(*train, "train.steps=40", "--run-dir", "fewer").exit_code == 0
    for step in (15, 20, 25, 28, 30, 35, 40):  # as if it had been stopped after step 10
        rmtree(workplace / f"fewer/step-{step:08d}")
    assert pellucid(*train, "train.steps=20", "--run-dir", "fewer", "--resume").exit_code == 0
    assert_same_end(workplace, "whole", "fewer", 20)


def test_what_cannot_go_on_says_so_in_one_line_and_changes_nothing(workplace: Path, pellucid):
    assert pellucid("train", "tiny.yaml", COSINE, *QUICK, "--run-dir", "cosine").exit_code == 0
    assert pellucid("train", "tiny.yaml", WSD, *QUICK, "--run-dir", "wsd").exit_code == 0
    for step in steps_in(workplace / "wsd")[:-1]:
        rmtree(workplace / f"wsd/step-{step:08d}")
    before = {path: path.read_bytes() for path in workplace.rglob("*") if path.is_file()}

    def resumed(schedule: str, run: str, steps: int):
        return pellucid("train", "tiny.yaml", schedule, *QUICK, f"train.steps={steps}", "--run-dir", run, "--resume")

    refused(resumed(COSINE, "cosine", 40), "the cosine schedule depends on it; ", "start_from=cosine")
    refused(resumed(WSD, "wsd", 40), "can go on from step 14 or before, and none is kept; ")
    refused(resumed(COSINE, "cosine", 10), "has made 20 steps, and train.steps is 10; ")
    refused(
        pellucid("train", "tiny.yaml", CONSTANT, *QUICK, "train.steps=40", "--run-dir", "cosine", "--resume"),
        'schedule.type was "cosine", is "constant"',
    )
    assert {path: path.read_bytes() for path in workplace.rglob("*") if path.is_file()} == before

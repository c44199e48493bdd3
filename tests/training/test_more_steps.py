"""A run that is given another number of steps goes on as if it had been planned so, or says why it cannot."""

from pathlib import Path
from shutil import rmtree

import pytest

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import TENSOR_FILES
from pellucid.training.metrics import read_rows
from pellucid.training.session import Session
from tiny_run import assert_one_error_line

WSD = "schedule={type: warmup_stable_decay, warmup_steps: 2, decay_fraction: 0.3}"
CONSTANT = "schedule={type: constant, warmup_steps: 2}"
COSINE = "schedule={type: cosine, warmup_steps: 2}"
QUICK = ("evaluation.every_steps=5", "sample.every_steps=20", "checkpoint.keep_last=1", "checkpoint.every_steps=50")


def assert_same_end(place: Path, a: str, b: str, step: int) -> None:
    for name in TENSOR_FILES:
        files = (place / run / f"step-{step:08d}" / name for run in (a, b))
        assert len({file.read_bytes() for file in files}) == 1, name
    losses = (
        [(row["step"], row["train_loss"], row.get("val_loss")) for row in read_rows(place / run / "metrics.jsonl")]
        for run in (a, b)
    )
    assert [*next(losses)] == [*next(losses)]


@pytest.mark.parametrize(("schedule", "went_on_from"), [(CONSTANT, 10), (WSD, 7)])
def test_a_finished_run_of_10_steps_made_20_equals_a_run_of_20(
    workplace: Path, pellucid, monkeypatch, schedule, went_on_from
):
    """With a schedule that decays, the checkpoint before the decay is kept, however few are.

    It is killed just after the first update that goes on another way: nothing of the old end is taken for the new run.
    """
    train = ("train", "tiny.yaml", schedule, *QUICK)
    assert pellucid(*train, "train.steps=20", "--run-dir", "whole").exit_code == 0
    assert pellucid(*train, "train.steps=10", "--run-dir", "more").exit_code == 0
    assert went_on_from in steps_in(workplace / "more")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_report", lambda self, update, stop, bar: (_ for _ in ()).throw(KeyboardInterrupt))
        killed = pellucid(*train, "train.steps=20", "--run-dir", "more", "--resume")
    assert killed.exit_code != 0
    assert ("deleted: the checkpoints of 10" in killed.stderr) == (went_on_from == 7)
    assert steps_in(workplace / "more")[-1] == went_on_from
    longer = pellucid(*train, "train.steps=20", "--run-dir", "more", "--resume")
    assert longer.exit_code == 0, longer
    assert f"at step {went_on_from}" in longer.stderr
    assert_same_end(workplace, "whole", "more", 20)


def test_fewer_steps_than_planned_and_more_than_made_equal_a_run_of_so_many(workplace: Path, pellucid):
    train = ("train", "tiny.yaml", WSD, *QUICK, "checkpoint.keep_last=9", "checkpoint.every_steps=5")
    assert pellucid(*train, "train.steps=10", "--run-dir", "whole").exit_code == 0
    assert pellucid(*train, "train.steps=20", "--run-dir", "fewer").exit_code == 0
    for step in (10, 14, 15, 20):  # as if it had been stopped after step 5
        rmtree(workplace / f"fewer/step-{step:08d}")
    assert pellucid(*train, "train.steps=10", "--run-dir", "fewer", "--resume").exit_code == 0
    assert_same_end(workplace, "whole", "fewer", 10)


def test_what_cannot_go_on_says_so_in_one_line_and_changes_nothing(workplace: Path, pellucid):
    for schedule, run in ((COSINE, "cosine"), (WSD, "wsd")):
        assert pellucid("train", "tiny.yaml", schedule, *QUICK, "train.steps=10", "--run-dir", run).exit_code == 0
    rmtree(workplace / "wsd/step-00000007")
    before = {path: path.read_bytes() for path in workplace.rglob("*") if path.is_file()}
    for schedule, run, steps, words in [
        (COSINE, "cosine", 20, ["the cosine schedule depends on it; ", "start_from=cosine"]),
        (WSD, "wsd", 20, ["can go on from step 7 or before, and none is kept; "]),
        (COSINE, "cosine", 5, ["has made 10 steps, and train.steps is 5; "]),
        (CONSTANT, "cosine", 20, ['schedule.type was "cosine", is "constant"']),
    ]:
        resumed = (schedule, *QUICK, f"train.steps={steps}", "--run-dir", run, "--resume")
        assert_one_error_line(pellucid("train", "tiny.yaml", *resumed), 4, *words)
    assert {path: path.read_bytes() for path in workplace.rglob("*") if path.is_file()} == before

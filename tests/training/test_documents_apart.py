"""Runs whose rows hold several documents that do not see each other."""

from pathlib import Path
from shutil import copytree, rmtree

import pytest

from pellucid.checkpoint.step_directory import TENSOR_FILES
from pellucid.training.metrics import read_rows

TRAIN = ("train", "tiny.yaml", "model.context_length=64", "train.steps=10")
APART = (*TRAIN, "data.documents_see_each_other=false")


def losses(run: Path) -> list[float]:
    return [row["train_loss"] for row in read_rows(run / "metrics.jsonl")]


@pytest.mark.parametrize("attention", ["explicit", "fused", "{type: sliding_window, window: 8}"])
def test_a_resumed_run_is_the_whole_one_bit_for_bit(workplace: Path, pellucid, attention):
    train = (*APART, f"model.attention={attention}")
    assert pellucid(*train, "--run-dir", "whole").exit_code == 0
    copytree("whole", "stopped")
    rmtree("stopped/step-00000010")
    assert pellucid(*train, "--run-dir", "stopped", "--resume").exit_code == 0
    for name in TENSOR_FILES:
        whole, resumed = (workplace / run / "step-00000010" / name for run in ("whole", "stopped"))
        assert whole.read_bytes() == resumed.read_bytes(), name
    assert losses(workplace / "stopped") == losses(workplace / "whole")


def test_the_first_loss_tells_the_two_apart_and_so_does_resuming(workplace: Path, pellucid):
    """With the same first weights, a document in a row of several is predicted from other tokens."""
    assert pellucid(*APART, "--run-dir", "apart").exit_code == 0
    assert pellucid(*TRAIN, "--run-dir", "together").exit_code == 0
    apart, together = losses(workplace / "apart"), losses(workplace / "together")
    assert apart[0] != together[0]
    assert apart[0] == pytest.approx(together[0], abs=0.1)
    refused = pellucid(*APART, "train.steps=12", "--run-dir", "together", "--resume")
    assert "data.documents_see_each_other was true, is false" in refused.stderr


def test_one_large_batch_and_its_parts_learn_the_same(workplace: Path, pellucid):
    for run, rows, parts in (("at_once", 4, 1), ("in_parts", 1, 4)):
        sizes = (f"train.batch_size={rows}", f"train.gradient_accumulation_steps={parts}")
        assert pellucid(*APART, *sizes, "model.dropout=0", "--run-dir", run).exit_code == 0
    assert losses(workplace / "at_once") == pytest.approx(losses(workplace / "in_parts"), abs=1e-4)

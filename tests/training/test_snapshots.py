"""Weights that a run keeps to be looked at: the same after a kill, and of use to every command but a resume."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.training.metrics import read_rows

QUICK = ("checkpoint.snapshots=6", "sample.every_steps=100", "sample.max_new_tokens=1")
STEPS = [0, 1, 2, 4, 9, 20]


def weights(run: Path) -> dict[int, bytes]:
    """The weights of each snapshot, by its step."""
    folder = run / "snapshots"
    return {step: (folder / f"step-{step:08d}/model.safetensors").read_bytes() for step in steps_in(folder)}


def test_snapshots_of_a_killed_and_resumed_run_are_those_of_an_undisturbed_one(workplace: Path, pellucid, monkeypatch):
    """Killed at update 10, after snapshot 9: resumed from checkpoint 5, it makes that again."""
    from pellucid.training.session import Trainer

    train = ("train", "tiny.yaml", *QUICK, "train.log_every_steps=5", "evaluation.every_steps=20", "--run-dir")
    assert pellucid(*train, "whole").exit_code == 0
    update = Trainer.update

    def killed(self):
        if self.step == 9:
            raise KeyboardInterrupt
        return update(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", killed)
        assert pellucid(*train, "killed").exit_code != 0
    assert list(weights(workplace / "killed")) == [0, 1, 2, 4, 9]
    (workplace / "killed/snapshots/step-00000009/state.json").unlink()  # and it may have been damaged meanwhile
    assert pellucid(*train, "killed", "--resume").exit_code == 0
    assert list(weights(workplace / "whole")) == STEPS
    for run in ("whole", "killed"):  # the loss of each is known: that of step 0 is the first update's
        assert [row["step"] for row in read_rows(workplace / run / "metrics.jsonl")] == [1, 2, 4, 5, 9, 10, 15, 20]
    assert weights(workplace / "killed") == weights(workplace / "whole")
    assert weights(workplace / "whole")[20] == (workplace / "whole/step-00000020/model.safetensors").read_bytes()


def test_commands_take_snapshots_by_their_step_and_a_resume_refuses_them_in_one_line(workplace: Path, pellucid):
    assert pellucid("train", "tiny.yaml", *QUICK, "evaluation.every_steps=4", "--run-dir", "run").exit_code == 0
    [logged] = [row["val_loss"] for row in read_rows(workplace / "run/metrics.jsonl") if row["step"] == 4]
    evaluated = json.loads(pellucid("evaluate", "run", "--checkpoint", "4", "--json").stdout)
    assert evaluated["loss_nats_per_token"] == pytest.approx(logged, abs=1e-6)
    assert pellucid("generate", "run", "--checkpoint", "4", "--max-new-tokens", "3").exit_code == 0
    verified = pellucid("verify", "run").stdout.splitlines()
    assert sum("snapshots" in line and line.endswith(": intact") for line in verified) == len(STEPS)
    tuned = ("train", "tiny.yaml", "name=tuned", "start_from=run@4", "train.steps=1", "schedule.warmup_steps=0")
    assert pellucid(*tuned, "checkpoint.snapshots=2").exit_code == 0
    first = read_checkpoint(workplace / "checkpoints/tuned/snapshots/step-00000000").model
    for name, tensor in read_checkpoint(workplace / "run/snapshots/step-00000004").model.items():
        assert torch.equal(first[name], tensor)
    refused = pellucid("train", "tiny.yaml", *QUICK, "--run-dir", "run/snapshots", "--resume")
    assert (refused.exit_code, refused.stderr.count("\n")) == (4, 1)
    assert "step-00000020: a snapshot is the weights alone, and training cannot go on from it" in refused.stderr

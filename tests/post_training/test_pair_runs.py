"""Reward models and DPO, from a config to a checkpoint: they learn what was preferred, and resume to the same bytes."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pellucid.trained import load_trained_model
from pellucid.training.metrics import read_rows
from tiny_run import assert_one_error_line

PAIRS = [
    {
        "prompt": f"Who {verb} the {thing}?",
        "chosen": f"The red {animal} {verb} the {thing}.",
        "rejected": f"The grey {animal} {verb} the {thing}.",
    }
    for verb in ("found", "lost")
    for thing in ("cheese", "corn", "key")
    for animal in ("fox", "hen", "crow")
]
FROM_PAIRS = """\
name: pairs
start_from: base
corpus: {type: preferences, files: [pairs.jsonl], validation_fraction: 0.2}
model: {dropout: 0.0}
objective: {type: dpo, beta: 0.5}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 12, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 6}
sample: {n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 6, keep_last: 10}
"""
SGD = "optimizer={type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0}"
OBJECTIVES = {"dpo": "objective={type: dpo, beta: 0.5}", "reward_model": "objective={type: reward_model}"}


@pytest.fixture
def place(tiny_place: Path, workplace: Path) -> Path:
    """A copy of the tiny run `base`, which knows no turns, and pairs with a config that learns from them."""
    shutil.copytree(tiny_place, workplace, dirs_exist_ok=True)
    (workplace / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (workplace / "pairs.yaml").write_text(FROM_PAIRS)
    return workplace


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_trained_model(run / f"step-{step:08d}").model.state_dict()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_what_is_preferred_and_says_so(place: Path, pellucid, objective):
    done = pellucid("train", "pairs.yaml", OBJECTIVES[objective], "train.steps=30", "--run-dir", "run")
    assert done.exit_code == 0, done
    rows = read_rows(place / "run" / "metrics.jsonl")
    first, last = rows[0], rows[-1]
    if objective == "dpo":
        assert first["train_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert last["val_loss"] < 0.4
    assert last["val_accuracy"] == 1
    assert last["val_margin"] > 0.5
    assert last["accuracy"] > 0.9
    assert last["chosen_reward"] > last["rejected_reward"]
    assert "accuracy 100.0%" in done.stdout + done.stderr
    measured = pellucid("evaluate", "run", "--checkpoint", "latest", "--json")
    assert measured.exit_code == 0, measured
    figures = json.loads(measured.stdout)
    assert figures["loss_nats_per_pair"] == pytest.approx(last["val_loss"], abs=1e-6)
    assert (figures["accuracy"], figures["pairs"]) == (1, 3)


def test_it_learns_a_ranking_of_three_answers(place: Path, pellucid):
    rankings = [
        {"prompt": pair["prompt"], "ranked": [pair["chosen"], pair["rejected"], f"{pair['prompt'][:-1]}: nobody."]}
        for pair in PAIRS
    ]
    (place / "rankings.jsonl").write_text("".join(json.dumps(ranking) + "\n" for ranking in rankings))
    changes = ["corpus.files=[rankings.jsonl]", "corpus.answers=3", "train.steps=60"]
    done = pellucid("train", "pairs.yaml", *changes, "--run-dir", "run")
    assert done.exit_code == 0, done
    rows = read_rows(place / "run" / "metrics.jsonl")
    assert rows[0]["train_loss"] == pytest.approx(math.log(6), abs=1e-5), "six rankings, equally likely"
    assert rows[-1]["val_loss"] < 0.6
    assert rows[-1]["val_accuracy"] == 1
    measured = pellucid("evaluate", "run", "--checkpoint", "latest")
    assert "nats over 3 rankings; guessing costs 1.7918" in measured.stdout, measured


def test_what_it_costs_is_said_to_be_learning_alone(place: Path, pellucid):
    assert "this is learning alone" in pellucid("cost", "pairs.yaml").stderr
    assert "this is learning alone" not in pellucid("cost", "tiny.yaml").stderr


@pytest.mark.parametrize(
    ("objective", "changes"),
    [("dpo", ()), ("reward_model", ("adapter={type: lora, rank: 4}",))],
    ids=["dpo", "adapter"],
)
def test_a_resumed_run_ends_with_the_same_bytes(place: Path, pellucid, objective, changes):
    """DPO also needs the model that it compares with; a reward model has its scalar head beside an adapter."""
    train = ("train", "pairs.yaml", OBJECTIVES[objective], *changes, "--run-dir")
    whole = pellucid(*train, "whole")
    assert whole.exit_code == 0, whole
    shutil.copytree(place / "whole", place / "again")
    shutil.rmtree(place / "again" / "step-00000012")
    resumed = pellucid(*train, "again", "--resume")
    assert resumed.exit_code == 0, resumed
    expected, found = (load_file(place / run / "step-00000012/model.safetensors") for run in ("whole", "again"))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    times = ("elapsed_seconds", "tokens_per_second")
    rows = [
        [{k: v for k, v in row.items() if k not in times} for row in read_rows(place / run / "metrics.jsonl")]
        for run in ("whole", "again")
    ]
    assert rows[0] == rows[1]
    if objective == "reward_model":
        heads = {"scalar_head.weight", "scalar_head.bias"}
        assert {name for name in found if not name.endswith(("A_RI", "B_OR"))} == heads
        measured = json.loads(pellucid("evaluate", "again", "--checkpoint", "latest", "--json").stdout)
        assert measured["loss_nats_per_pair"] == pytest.approx(rows[0][-1]["val_loss"], abs=1e-5)


def test_dpo_needs_the_weights_that_it_compares_with_to_the_end(place: Path, pellucid):
    assert pellucid("train", "pairs.yaml", "--run-dir", "run").exit_code == 0
    shutil.rmtree(place / "run" / "step-00000012")
    shutil.rmtree(place / "base" / "step-00000020")
    for command in (("train", "pairs.yaml", "--run-dir", "run", "--resume"), ("evaluate", "run")):
        assert_one_error_line(
            pellucid(*command), 4, "the weights that this run started from, and still needs, are no longer here"
        )


def test_in_parts_and_micro_batches_an_update_is_the_same(place: Path, pellucid):
    """Row by row: what is a mean over pairs is one over all pairs of an update."""
    runs = {}
    for name, size, k in (("whole", 4, 1), ("parts", 2, 2)):
        changes = [f"train.batch_size={size}", f"train.gradient_accumulation_steps={k}", "train.steps=3", SGD]
        assert pellucid("train", "pairs.yaml", *changes, "--run-dir", name).exit_code == 0
        runs[name] = weights(place / name, 3)
    for name, tensor in runs["whole"].items():
        torch.testing.assert_close(runs["parts"][name], tensor, atol=1e-5, rtol=1e-4)


def test_what_cannot_be_learned_from_is_refused_in_one_line(place: Path, pellucid):
    done = pellucid("train", "pairs.yaml", "model.context_length=8", "--run-dir", "run")
    assert_one_error_line(done, 3, "no pair of the train split fits into model.context_length 8")
    assert not (place / "run" / "metrics.jsonl").exists()

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


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_a_ranking_of_three_answers(place: Path, pellucid, objective):
    rankings = [
        {"prompt": pair["prompt"], "ranked": [pair["chosen"], pair["rejected"], f"{pair['prompt'][:-1]}: nobody."]}
        for pair in PAIRS
    ]
    (place / "rankings.jsonl").write_text("".join(json.dumps(ranking) + "\n" for ranking in rankings))
    changes = ["corpus.files=[rankings.jsonl]", "corpus.answers=3", "train.steps=60"]
    done = pellucid("train", "pairs.yaml", OBJECTIVES[objective], *changes, "--run-dir", "run")
    assert done.exit_code == 0, done
    rows = read_rows(place / "run" / "metrics.jsonl")
    if objective == "dpo":
        assert rows[0]["train_loss"] == pytest.approx(math.log(6), abs=1e-5), "six rankings, equally likely"
    assert rows[-1]["val_loss"] < 0.6
    assert rows[-1]["val_accuracy"] == 1
    measured = pellucid("evaluate", "run", "--checkpoint", "latest")
    assert "nats over 3 rankings; guessing costs 1.7918" in measured.stdout, measured


def test_what_it_costs_is_said_to_be_learning_alone(place: Path, pellucid):
    assert "this is learning alone" in pellucid("cost", "pairs.yaml").stderr
    assert "this is learning alone" not in pellucid("cost", "tiny.yaml").stderr


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_resumed_run_ends_with_the_same_bytes(place: Path, pellucid, objective):
    whole = pellucid("train", "pairs.yaml", OBJECTIVES[objective], "--run-dir", "whole")
    assert whole.exit_code == 0, whole
    shutil.copytree(place / "whole", place / "again")
    shutil.rmtree(place / "again" / "step-00000012")
    resumed = pellucid("train", "pairs.yaml", OBJECTIVES[objective], "--run-dir", "again", "--resume")
    assert resumed.exit_code == 0, resumed
    expected, found = weights(place / "whole", 12), weights(place / "again", 12)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    times = ("elapsed_seconds", "tokens_per_second")
    rows = [
        [{k: v for k, v in row.items() if k not in times} for row in read_rows(place / run / "metrics.jsonl")]
        for run in ("whole", "again")
    ]
    assert rows[0] == rows[1]
    if objective == "reward_model":
        assert "scalar_head.weight" in found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_adapter_learns_from_pairs_too_beside_a_scalar_head_and_resumes_to_the_same_bytes(
    place: Path, pellucid, objective
):
    train = ("train", "pairs.yaml", OBJECTIVES[objective], "adapter={type: lora, rank: 4}", "--run-dir")
    assert pellucid(*train, "whole").exit_code == 0
    rows = read_rows(place / "whole" / "metrics.jsonl")
    assert rows[-1]["val_loss"] < 0.6
    kept = load_file(place / "whole/step-00000012/model.safetensors")
    heads = {"scalar_head.weight", "scalar_head.bias"} if objective == "reward_model" else set()
    assert {name for name in kept if not name.endswith(("A_RI", "B_OR"))} == heads
    shutil.copytree(place / "whole", place / "again")
    shutil.rmtree(place / "again" / "step-00000012")
    assert pellucid(*train, "again", "--resume").exit_code == 0
    again = load_file(place / "again/step-00000012/model.safetensors")
    assert all(torch.equal(again[name], tensor) for name, tensor in kept.items())
    measured = json.loads(pellucid("evaluate", "again", "--checkpoint", "latest", "--json").stdout)
    assert measured["loss_nats_per_pair"] == pytest.approx(rows[-1]["val_loss"], abs=1e-5)


def test_dpo_needs_the_weights_that_it_compares_with_to_the_end(place: Path, pellucid):
    assert pellucid("train", "pairs.yaml", "--run-dir", "run").exit_code == 0
    shutil.rmtree(place / "run" / "step-00000012")
    shutil.rmtree(place / "base" / "step-00000020")
    for command in (("train", "pairs.yaml", "--run-dir", "run", "--resume"), ("evaluate", "run")):
        refused = pellucid(*command)
        assert refused.exit_code == 4, refused
        [line] = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
        assert "the weights that this run started from, and still needs, are no longer here" in line


def test_in_parts_and_micro_batches_an_update_is_the_same(place: Path, pellucid):
    """Row by row: what is a mean over pairs is one over all pairs of an update."""
    runs = {}
    for name, size, k in (("whole", 4, 1), ("parts", 2, 2)):
        changes = [f"train.batch_size={size}", f"train.gradient_accumulation_steps={k}", "train.steps=3", SGD]
        assert pellucid("train", "pairs.yaml", *changes, "--run-dir", name).exit_code == 0
        runs[name] = weights(place / name, 3)
    for name, tensor in runs["whole"].items():
        torch.testing.assert_close(runs["parts"][name], tensor, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "exit_code", "words"),
    [
        (["objective={type: sft}"], 2, "preferences are pairs of answers, from which sft does not learn"),
        (
            ["objective={type: next_token}"],
            2,
            "from which next_token does not learn; use objective reward_model or dpo",
        ),
        (["objective.judge_noise=0"], 2, "objective.judge_noise"),
        (["objective.beta=0"], 2, "objective.beta"),
        (["model.context_length=8"], 3, "no pair of the train split fits into model.context_length 8"),
        (["corpus.files=[none.jsonl]"], 3, "none.jsonl"),
        (["corpus.files=[same.jsonl]"], 3, "pair 2: chosen and rejected are the same answer"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_one_line(place: Path, pellucid, changes, exit_code, words):
    same = {"prompt": "Who?", "chosen": "The fox.", "rejected": "The fox."}
    (place / "same.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in (PAIRS[0], same, PAIRS[1])))
    refused = pellucid("train", "pairs.yaml", *changes, "--run-dir", "run")
    assert refused.exit_code == exit_code, refused
    [line] = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert words in line
    assert "Traceback" not in refused.stderr
    assert not (place / "run" / "metrics.jsonl").exists()

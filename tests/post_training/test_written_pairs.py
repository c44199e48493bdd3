"""On instructions the model of `start_from` writes the pairs: judged, learned from, and the same after a resume."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from pellucid.config.load import load_run_config
from pellucid.post_training import pairs
from pellucid.post_training.rewards import GrammarJudge
from pellucid.runs.train_run import train_run
from pellucid.trained import load_trained_model
from pellucid.training.metrics import read_rows
from tiny_run import assert_one_error_line

FINE_TUNING = """\
name: sft
corpus: {type: instructions, size: 80, world_size: 3, validation_fraction: 0.4}
tokenizer: {type: bpe, vocab_size: 400}
data: {packing: documents}
model: {context_length: 256, d_model: 16, n_layers: 1, n_heads: 2}
objective: {type: sft}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 2, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 2, max_tokens: 100}
sample: {n_samples: 1, max_new_tokens: 4}
"""
FROM_PAIRS = """\
name: pairs
start_from: sft
corpus: {type: instructions, size: 80, world_size: 3, validation_fraction: 0.4}
data: {packing: documents}
objective: {type: reward_model, max_new_tokens: 6}
optimizer: {type: adamw, lr: 3e-2}
schedule: {type: constant}
train: {steps: 24, batch_size: 16, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 12}
sample: {n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 12, keep_last: 10}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A folder with a run that has just begun to follow instructions."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "sft.yaml").write_text(FINE_TUNING)
    config = load_run_config(folder / "sft.yaml")
    train_run(config, folder / "data", folder / "sft", resume=False, overwrite=False, note=print)
    return folder


@pytest.fixture
def place(base: Path, workplace: Path, monkeypatch) -> Path:
    """A copy of it, and a config that learns from its answers."""
    shutil.copytree(base, workplace, dirs_exist_ok=True)
    (workplace / "pairs.yaml").write_text(FROM_PAIRS)
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 32)
    return workplace


def test_it_learns_what_the_judge_likes_and_resumes_to_the_same_bytes(place: Path, pellucid, monkeypatch):
    """A model that writes no fables can please this judge. A reward model reads the last token first."""
    monkeypatch.setattr(GrammarJudge, "reward", lambda judge, prompt, answer: float(answer[-1] < 200))
    whole = pellucid("train", "pairs.yaml", "--run-dir", "whole")
    assert whole.exit_code == 0, whole
    rows = read_rows(place / "whole" / "metrics.jsonl")
    assert rows[-1]["val_accuracy"] > 0.7
    shutil.copytree(place / "whole", place / "again")
    shutil.rmtree(place / "again" / "step-00000024")
    resumed = pellucid("train", "pairs.yaml", "--run-dir", "again", "--resume")
    assert resumed.exit_code == 0, resumed
    runs = [load_trained_model(place / run / "step-00000024").model.state_dict() for run in ("whole", "again")]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    measured = pellucid("evaluate", "whole", "--checkpoint", "latest", "--json")
    assert measured.exit_code == 0, measured
    assert json.loads(measured.stdout)["accuracy"] == pytest.approx(rows[-1]["val_accuracy"])


def test_answers_that_are_all_equally_good_are_refused_before_the_first_update(place: Path, pellucid, monkeypatch):
    monkeypatch.setattr(GrammarJudge, "reward", lambda judge, prompt, answer: 0.0)
    words = "answers all held-out instructions equally well: nothing can be preferred; fine-tune it first"
    assert_one_error_line(pellucid("train", "pairs.yaml", "--run-dir", "run"), 3, words)
    assert not (place / "run" / "config.yaml").exists()
    assert not (place / "run" / "metrics.jsonl").exists()

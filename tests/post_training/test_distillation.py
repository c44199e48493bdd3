"""Learning from a teacher: what a batch is does not depend on how an update is cut up, and who cannot teach says so."""

from pathlib import Path

import pytest
import torch

from pellucid.config.load import load_run_config
from pellucid.errors import ConfigError
from pellucid.recipe import build_trainer, prepare_data
from pellucid.runs.train_run import train_run
from pellucid.training.metrics import read_rows

CONFIG = """\
name: pupil
corpus: {type: hidden, size: 60, length: 12, validation_fraction: 0.1}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 13, d_model: 16, n_layers: 1, n_heads: 2, embedding_std: 0.1}
objective: {type: distill, teacher: truth}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 0}
train: {steps: 3, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 3}
sample: {n_samples: 1, max_new_tokens: 4}
"""
ON_POLICY = "objective.on_policy=true"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the trained run `teacher`."""
    place = tmp_path_factory.mktemp("distillation")
    (place / "pupil.yaml").write_text(CONFIG)
    train(place, "teacher", "objective={type: next_token}", "train.steps=20")
    return place


def train(place: Path, name: str, *changes: str) -> list[dict]:
    config = load_run_config(place / "pupil.yaml", changes)
    train_run(config, place / "data", place / name, resume=False, overwrite=True, note=lambda line: None)
    return read_rows(place / name / "metrics.jsonl")


def trainer_of(place: Path, *changes: str):
    config = load_run_config(place / "pupil.yaml", changes)
    return build_trainer(config, prepare_data(config, place / "data"))[0]


@pytest.mark.parametrize("teacher", ["truth", "run"])
@pytest.mark.parametrize("on_policy", [True, False])
def test_an_update_is_the_same_however_it_is_cut_up(place, teacher, on_policy):
    objective = f"objective={{type: distill, teacher: {teacher}, on_policy: {str(on_policy).lower()}}}"
    objective = objective.replace("run", str(place / "teacher"))
    whole = trainer_of(place, objective)
    in_two = trainer_of(place, objective, "train.batch_size=2", "train.gradient_accumulation_steps=2")
    loss = whole.update().loss
    assert loss == pytest.approx(in_two.update().loss, rel=1e-5)
    assert loss > 0.01
    for mine, theirs in zip(whole.model.parameters(), in_two.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
    rows = [whole.get_batch(5, slice(*part)) for part in ((0, 1), (1, 4), (0, 4))]
    assert rows[0].n_losses + rows[1].n_losses == rows[2].n_losses


@pytest.mark.parametrize("changes", [(), (ON_POLICY,), (ON_POLICY, "objective.divergence=reverse")])
def test_a_pupil_that_is_its_teacher_has_nothing_to_learn(place, changes):
    teacher = (f"start_from={place / 'teacher'}", f"objective.teacher={place / 'teacher'}", "objective.temperature=2")
    row = train(place, "same", *teacher, "tokenizer={type: bpe, vocab_size: 300}", *changes)[0]
    assert row["train_loss"] == pytest.approx(0, abs=1e-5)
    assert row["gradient_norm"] < 1e-3


def test_a_model_without_a_longest_text_writes_no_more_than_the_context(place):
    trainer = trainer_of(place, "model={type: lstm, context_length: 13, d_model: 8}", ON_POLICY)
    batch = trainer.get_batch(0, slice(None))
    assert batch.inputs_BT.size(1) <= 13
    assert 4 <= batch.n_losses <= 4 * 13


def test_the_truth_teaches_an_adapter_of_a_run(place):
    changes = (f"start_from={place / 'teacher'}", "adapter={type: lora, rank: 2}", ON_POLICY, "train.steps=12")
    first, *_, last = [row["val_loss"] for row in train(place, "adapted", *changes) if "val_loss" in row]
    assert last < first


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (("objective.teacher=TEACHER", "corpus={type: chains, size: 40, length: 10}"), "has another vocabulary"),
        (("objective.teacher=TEACHER", "model.context_length=20"), "reads 13 tokens, fewer than 20"),
        (("tokenizer={type: char}", ON_POLICY), "takes 2 tokens, and on_policy needs one token for each"),
        (
            ("corpus={type: fables, size: 20, world_size: 3, validation_fraction: 0.2}", ON_POLICY),
            "only a language of symbols can follow what a model writes",
        ),
    ],
)
def test_who_cannot_teach_is_refused(place, changes, line):
    changes = [change.replace("TEACHER", str(place / "teacher")) for change in changes]
    with pytest.raises(ConfigError, match=line):
        trainer_of(place, *changes).update()

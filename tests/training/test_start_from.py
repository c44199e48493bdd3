"""A run from a run: it begins with the weights of another and nothing else, and refuses those that do not fit."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.family import FAMILY, family_config
from pellucid.checkpoint.run_directory import steps_in
from pellucid.config.load import load_run_config
from pellucid.runs.start_from import base_of, first_difference
from pellucid.trained import load_trained_model
from pellucid.training.metrics import read_rows
from tiny_run import SPEECHES, assert_one_error_line

FINE_TUNING = """\
name: tuned
start_from: base
corpus: {type: text, files: [speeches.txt], separator: "\\n\\n"}
data: {packing: documents}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 4, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 2}
sample: {n_samples: 1, max_new_tokens: 4}
"""
STILL = ("optimizer.lr=1e-30", "train.steps=1")  # so small that adding it to a number of 32 bits changes none


@pytest.fixture
def place(tiny_place: Path, workplace: Path) -> Path:
    """A copy of the tiny run `base`, and a config that starts from it on another corpus."""
    shutil.copytree(tiny_place, workplace, dirs_exist_ok=True)
    (workplace / "speeches.txt").write_text(SPEECHES)
    (workplace / "tuned.yaml").write_text(FINE_TUNING)
    return workplace


def test_it_begins_with_exactly_these_weights_and_with_step_0_moments_and_log_of_its_own(place: Path, pellucid):
    changes = ("corpus.files=[corpus.txt]", *STILL)
    done = pellucid("train", "tuned.yaml", "start_from=base@20", *changes, "--run-dir", "tuned")
    assert done.exit_code == 0, done
    assert "from    base step 20" in done.stderr
    base, tuned = (
        load_file(place / run / f"step-{step:08d}/model.safetensors") for run, step in (("base", 20), ("tuned", 1))
    )
    assert base.keys() == tuned.keys()
    assert all(torch.equal(base[name], tuned[name]) for name in base)
    evaluation = json.loads(pellucid("evaluate", "base", "--checkpoint", "20", "--json").stdout)
    [row] = read_rows(place / "tuned/metrics.jsonl")
    assert row["val_loss"] == pytest.approx(evaluation["loss_nats_per_token"], rel=1e-6)  # in other batches
    assert row["step"] == 1
    moments = load_file(place / "tuned/step-00000001/optimizer.safetensors")
    assert {float(value) for name, value in moments.items() if name.endswith("/step")} == {1.0}


def test_the_best_the_newest_and_any_step_of_the_base_can_be_named(place: Path):
    starts = {"base@best": 20, "base@latest": 20, "base@5": 5, "base/step-00000010": 10}
    for start, step in starts.items():
        base = base_of(load_run_config(Path("tuned.yaml"), [f"start_from={start}"]), None)
        assert (base.run, base.checkpoint.state.step) == (Path("base"), step)


def test_the_shipped_config_fine_tunes_any_run(place: Path, pellucid):
    (place / "my.txt").write_text(SPEECHES * 3)
    changes = ("corpus.files=my.txt", "start_from=base", "train.steps=25", "sample.max_new_tokens=4")
    done = pellucid("train", "fine_tune", *changes)
    assert done.exit_code == 0, done
    assert read_rows(place / "checkpoints/fine_tune/metrics.jsonl")[-1]["step"] == 25


def test_it_goes_on_and_is_evaluated_and_writes_when_its_base_is_gone(place: Path, pellucid):
    assert pellucid("train", "tuned.yaml", "--run-dir", "whole").exit_code == 0
    assert pellucid("train", "tuned.yaml", "train.steps=2", "--run-dir", "runs").exit_code == 0
    shutil.rmtree(place / "base")
    config = load_run_config(place / "runs/config.yaml")
    assert (config.start_from, config.model.d_model) == ("base", 16)
    assert config.tokenizer.path == "runs/tokenizer.json"
    resumed = pellucid("train", "runs/config.yaml", "train.steps=4", "--run-dir", "runs", "--resume")
    assert resumed.exit_code == 0, resumed
    weights = (place / run / "step-00000004/model.safetensors" for run in ("whole", "runs"))
    assert len({file.read_bytes() for file in weights}) == 1
    (place / "runs").rename(place / "moved")
    for command in (("evaluate", "moved"), ("generate", "moved", "--max-new-tokens", "4")):
        done = pellucid(*command)
        assert done.exit_code == 0, done
        assert "warning" not in done.stderr


def test_another_start_is_another_run(place: Path, pellucid):
    assert pellucid("train", "tuned.yaml", *STILL, "--run-dir", "runs").exit_code == 0
    again = pellucid("train", "tuned.yaml", *STILL, "start_from=base@5", "--run-dir", "runs", "--resume")
    assert_one_error_line(again, 4, 'start_from was "base", is "base@5"')


def test_what_does_not_fit_is_refused_in_one_line_before_anything_is_written(place: Path, pellucid):
    size = {"context_length": 32, "d_model": 16, "n_layers": 2, "n_heads": 2}

    def with_model(**changes) -> str:
        return f"model={json.dumps({**size, **changes})}"

    cases = {
        with_model(d_model=32): (2, "error: model.d_model: 32 does not fit the weights of base, made with 16; "),
        with_model(n_layers=3, norm="rms_norm"): (2, "model.n_layers: 3 "),
        with_model(qk_norm=True): (2, "model.qk_norm: True "),
        with_model(position={"type": "learned"}): (2, "model.position.type: learned "),
        with_model(attention={"type": "sliding_window", "window": 4}): (2, "model.attention"),
        with_model(d_ff=63): (4, "feed_forward"),
        "model={type: bigram, context_length: 32}": (2, "model.type: bigram "),
        "tokenizer={type: bpe, vocab_size: 280}": (
            2,
            "error: tokenizer: this vocabulary (280 tokens) is not that of base (300); ",
        ),
        "tokenizer={type: file, path: nowhere.json}": (3, "'nowhere.json' cannot be read"),
        "start_from=nowhere": (4, "error: nowhere: no such run; "),
        "start_from=data": (4, "error: data: no checkpoint here; train it first, or name another run"),
        "start_from=base@7": (4, "error: base: no checkpoint '7'; use best, latest or a step: 5, 10, 15, 20"),
        "start_from=base@bets": (4, "error: base: no checkpoint 'bets'; "),
        "start_from=base@15": (4, "error: base/step-00000015: damaged: "),
    }
    (place / "base/step-00000015/model.safetensors").write_bytes(b"")
    for change, (exit_code, words) in cases.items():
        assert_one_error_line(pellucid("train", "tuned.yaml", change, "--run-dir", "tuned"), exit_code, words)
        assert steps_in(place / "tuned") == []
        assert not (place / "tuned/config.yaml").exists(), change


def test_what_leaves_the_weights_their_meaning_may_differ(place: Path, pellucid):
    free = {"dropout": 0.2, "attention": "fused", "copying_init": True, "d_ff": 64}
    model = json.dumps({"context_length": 48, "d_model": 16, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, **free})
    done = pellucid("train", "tuned.yaml", f"model={model}", *STILL, "--run-dir", "tuned")
    assert done.exit_code == 0, done
    assert load_trained_model(place / "tuned/step-00000001").model.context_length == 48


COUNTED_BIGRAM = {"type": "bigram", "context_length": 32, "counted": True}


@pytest.mark.parametrize("model", [FAMILY["decoder with experts"], FAMILY["lstm"], COUNTED_BIGRAM], ids=str)
def test_other_kinds_of_model_can_be_a_base(workplace: Path, pellucid, model):
    (workplace / "speeches.txt").write_text(SPEECHES)
    (workplace / "tuned.yaml").write_text(FINE_TUNING)
    first = ("schedule={type: constant}", *STILL, f"model={json.dumps(model)}", "--run-dir", "base")
    assert pellucid("train", "tiny.yaml", *first).exit_code == 0
    assert pellucid("train", "tuned.yaml", *STILL, "--run-dir", "tuned").exit_code == 0
    base, tuned = (load_file(workplace / run / "step-00000001/model.safetensors") for run in ("base", "tuned"))
    assert all(torch.allclose(base[name], tuned[name], rtol=0, atol=1e-25) for name in base)


@pytest.mark.parametrize("kind", FAMILY)
def test_a_longer_context_fits_where_positions_are_no_weights(kind: str):
    base = family_config(kind)
    longer = family_config(kind, context_length=base.context_length + 4)
    is_learned = kind == "post-norm decoder"
    assert first_difference(base, longer) == ("context_length" if is_learned else None)
    assert first_difference(base, base) is None

"""`pellucid evaluate` on a run that follows instructions, and on the text of the run that it started from."""

import json
import re
import shutil
from pathlib import Path

import pytest

import pellucid as library

TRAINED = """
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 2}
train: {steps: 3, batch_size: 2, precision: fp32, device: cpu}
data: {packing: documents}
evaluation: {every_steps: 3}
"""
BASE = f"""
name: base
corpus: {{type: fables, size: 20, world_size: 3, validation_fraction: 0.2}}
tokenizer: {{type: bpe, vocab_size: 600}}
model: {{context_length: 400, d_model: 8, n_layers: 1, n_heads: 2}}
{TRAINED}"""
INSTRUCTED = f"""
corpus: {{type: instructions, size: 30, world_size: 3, validation_fraction: 0.2}}
objective: {{type: sft}}
{TRAINED}"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with three runs: of fables, of instructions from there, and of more instructions from there."""
    place = tmp_path_factory.mktemp("instructed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        Path("base.yaml").write_text(BASE)
        Path("sft.yaml").write_text(f"name: sft\nstart_from: checkpoints/base\n{INSTRUCTED}")
        Path("more.yaml").write_text(f"name: more\nstart_from: checkpoints/sft\n{INSTRUCTED}")
        for name in ("base", "sft", "more"):
            library.train(f"{name}.yaml")
    return place


@pytest.fixture
def runs(trained, monkeypatch) -> Path:
    monkeypatch.chdir(trained)
    return trained


def test_a_run_that_follows_instructions_is_asked_to(runs, pellucid):
    figures = json.loads(pellucid("evaluate", "checkpoints/sft", "--json").stdout)
    assert "instruction" in figures["skills"]
    assert figures["answers"]["instructions"]["all"]["answers"] == 6, "all that are held out"
    assert figures["answers"]["kl_nats_per_answer"] is None, "the model of fables knew no instructions"
    assert {"step": 3, **library.load("checkpoints/sft").evaluate().to_json()} == figures
    shown = pellucid("evaluate", "checkpoints/sft", "--answers", "4").stdout
    assert re.search(r"^ *all +4 ", shown, re.MULTILINE)
    assert "answers to" not in pellucid("evaluate", "checkpoints/sft", "--answers", "0").stdout


def test_the_divergence_is_from_the_run_that_it_started_from(runs, pellucid, tmp_path, monkeypatch):
    shown = pellucid("evaluate", "checkpoints/more", "--answers", "2")
    assert "nats per answer from checkpoints/sft" in shown.stdout
    table = library.load("checkpoints/more").evaluate(answers=2).answers
    assert table.kl > 0
    shutil.copytree("checkpoints/more", tmp_path / "checkpoints/more")
    shutil.copytree("data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    assert library.load("checkpoints/more").evaluate(answers=2).answers.kl is None, "that run is not here"


def test_what_was_forgotten_shows_on_the_text_of_the_run_before(runs, pellucid):
    before = json.loads(pellucid("evaluate", "checkpoints/base", "--json").stdout)
    after = json.loads(pellucid("evaluate", "checkpoints/sft", "--on", "checkpoints/base", "--json").stdout)
    for same in ("tokens", "bytes", "floor_nats_per_token"):
        assert after[same] == before[same]
    assert after["loss_nats_per_token"] != before["loss_nats_per_token"]
    assert after["answers"] is None
    for other in ("base.yaml", "checkpoints/base/step-00000003"):
        assert json.loads(pellucid("evaluate", "checkpoints/sft", "--on", other, "--json").stdout) == after
    assert {"step": 3, **library.load("checkpoints/sft").evaluate(on="checkpoints/base").to_json()} == after
    on_itself = json.loads(pellucid("evaluate", "checkpoints/base", "--on", "checkpoints/base", "--json").stdout)
    assert on_itself == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["base", "--answers", "3"], "error: --answers: only of a model that follows instructions"),
        (
            ["sft", "--answers", "3", "--on", "base.yaml"],
            "error: command line: --text, --on and --answers (with --samples)",
        ),
        (["sft", "--samples", "3"], "error: --samples: only questions of hops and sums have one right answer"),
        (["sft", "--on", "absent.yaml"], "error: absent.yaml: no such file"),
        (["sft", "--on", "other.yaml"], "error: --on: other.yaml: its text was made into tokens of another vocabulary"),
    ],
)
def test_what_cannot_be_measured_is_refused(runs, pellucid, arguments, complaint):
    (runs / "other.yaml").write_text(BASE.replace("vocab_size: 600", "vocab_size: 500"))
    run, *options = arguments
    refused = pellucid("evaluate", f"checkpoints/{run}", *options)
    assert refused.exit_code == 2
    [error] = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith(complaint)
    assert "; " in error

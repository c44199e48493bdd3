"""A run on disk: what it leaves, and that stopping it changes nothing."""

import json
import math
import re
import shutil
import signal
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pellucid import recipe
from pellucid.checkpoint import step_directory
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import TENSOR_FILES, read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.kernels import products
from pellucid.recipe import build_batches, build_trainer, prepare_data
from pellucid.runs import train_run as train_run_module
from pellucid.runs.train_run import train_run
from pellucid.runtime.distributed import ALONE
from pellucid.training import progress, progress_bar
from pellucid.training.metrics import read_rows
from pellucid.training.trainer import Trainer
from tiny_run import TINY_RUN, VERSES

HIDDEN = "corpus={type: hidden, size: 30, length: 20}"
TAUGHT = f"{HIDDEN} & objective={{type: distill, teacher: truth"
NEEDS_TEACHERS = pytest.mark.skipif(find_spec("pellucid.post_training") is None, reason="the core alone has none")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run `whole` of the tiny config."""
    place = tmp_path_factory.mktemp("session")
    (place / "corpus.txt").write_text(VERSES)
    (place / "tiny.yaml").write_text(TINY_RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        train(place, "whole")
    return place


@pytest.fixture
def after(place: Path, workplace: Path) -> Path:
    """A copy of it to work in."""
    shutil.copytree(place, workplace, dirs_exist_ok=True)
    return workplace


def train(workplace: Path, run_dir: str, *overrides: str, resume: bool = False, minutes: float | None = None):
    config = load_run_config(workplace / "tiny.yaml", overrides)
    notes: list[str] = []
    options = {"resume": resume, "overwrite": False, "minutes": minutes}
    outcome = train_run(config, workplace / "data", workplace / run_dir, **options, note=notes.append)
    return outcome, notes


def without_timings(rows):
    return [{k: v for k, v in row.items() if k not in ("elapsed_seconds", "tokens_per_second")} for row in rows]


def assert_same_run(a: Path, b: Path, step: int):
    for name in TENSOR_FILES:
        assert (a / f"step-{step:08d}" / name).read_bytes() == (b / f"step-{step:08d}" / name).read_bytes(), name
    assert without_timings(read_rows(a / "metrics.jsonl")) == without_timings(read_rows(b / "metrics.jsonl"))
    assert (a / "samples.md").read_text() == (b / "samples.md").read_text()


@pytest.mark.parametrize(
    "override",
    [
        "optimizer={type: adamw, lr: 1e-2}",
        "optimizer={type: muon}",
        "optimizer={type: sgd, momentum: 0.5}",
        f"{HIDDEN} & objective={{type: masked}} & model.attention_mask=none & data.documents_see_each_other=false"
        ' & tokenizer.special_tokens=["<|endoftext|>", "<|mask|>"]',
        pytest.param(f"{TAUGHT}}} & data.packing=contiguous", marks=NEEDS_TEACHERS),
        pytest.param(f"{TAUGHT}, on_policy: true, divergence: reverse}}", marks=NEEDS_TEACHERS),
    ],
)
def test_twenty_steps_equal_ten_a_resume_and_ten_more_bit_for_bit(workplace: Path, override: str):
    """With dropout and accumulation, over several epochs; weights, moments, generators, losses and samples."""
    changes = override.split(" & ")
    outcome, _ = train(workplace, "whole", *changes)
    shutil.copytree(workplace / "whole", workplace / "cut")
    for step in (15, 20):
        shutil.rmtree(workplace / "cut" / f"step-{step:08d}")
    assert max(steps_in(workplace / "cut")) == 10
    resumed, notes = train(workplace, "cut", *changes, resume=True)
    assert notes[0].endswith("at step 10")
    assert resumed.evaluation == outcome.evaluation
    assert_same_run(workplace / "whole", workplace / "cut", 20)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has one way to compute a product")
def test_a_resumed_run_computes_its_products_as_before_though_another_way_is_faster_now(workplace: Path, monkeypatch):
    """Here oneDNN was the fastest; the process that goes on would have chosen PyTorch, which rounds otherwise.

    On some CPUs it rounds as oneDNN does, so it rounds less in this test.
    """

    def in_float64(product):
        return lambda *factors: product(*(each if each is None else each.double() for each in factors)).float()

    ways = {kind: {**ways, "PyTorch": in_float64(ways["PyTorch"])} for kind, ways in products.WAYS.items()}
    monkeypatch.setattr(products, "WAYS", ways)
    monkeypatch.setattr(products, "FEWEST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(products, "CHOSEN", {})
    monkeypatch.setattr(progress, "CHOSEN", products.CHOSEN)
    for name, way in (("whole", "oneDNN"), ("cut", "oneDNN"), ("other", "PyTorch")):
        products.CHOSEN.clear()
        monkeypatch.setattr(products, "fastest", lambda ways, factors, way=way: way)
        train(workplace, name, "train.precision=fp32")
    for step in (15, 20):
        shutil.rmtree(workplace / "cut" / f"step-{step:08d}")
    products.CHOSEN.clear()
    train(workplace, "cut", "train.precision=fp32", resume=True)
    assert_same_run(workplace / "whole", workplace / "cut", 20)
    weights = [(workplace / run / "step-00000020" / "model.safetensors").read_bytes() for run in ("whole", "other")]
    assert weights[0] != weights[1]


def test_evaluations_of_the_whole_validation_text_during_training_do_not_read_the_training_text(
    workplace: Path, monkeypatch
):
    read = []
    real = recipe.evaluate_tokens
    monkeypatch.setattr(
        recipe, "evaluate_tokens", lambda model, tokens, **rest: read.append(tokens.name) or real(model, tokens, **rest)
    )
    train(workplace, "whole", "evaluation={every_steps: 4, max_tokens: null}")
    validation, *_ = read
    n_at_the_end = sum(name != validation for name in read)
    assert n_at_the_end <= 2 < read.count(validation)  # of the last step, and of the best


def test_a_signal_saves_and_the_resumed_run_equals_the_uninterrupted_one(workplace: Path, monkeypatch):
    """With experts, whose load in the last update before the stop is reported after the resume."""
    experts = "model.feed_forward={type: moe, n_experts: 4}"
    train(workplace, "whole", experts)
    real_update = Trainer.update

    def interrupted_update(self):
        if self.step == 12:
            signal.raise_signal(signal.SIGTERM)
        return real_update(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "update", interrupted_update)
        outcome, _ = train(workplace, "stopped", experts)
    assert (outcome.step, outcome.stopped_by, outcome.evaluation) == (13, signal.SIGTERM, None)
    assert max(steps_in(workplace / "stopped")) == 13
    train(workplace, "stopped", experts, resume=True)
    assert_same_run(workplace / "whole", workplace / "stopped", 20)


def test_on_fables_each_evaluation_records_every_skill_and_a_plot_is_drawn(workplace: Path, ink):
    fables = ["corpus={type: fables, size: 20, world_size: 3, validation_fraction: 0.2}", "tokenizer.vocab_size=400"]
    outcome, _ = train(workplace, "fables", *fables, "model.context_length=256", "train.steps=6")
    rows = [row for row in read_rows(workplace / "fables" / "metrics.jsonl") if "val_loss" in row]
    for row in rows:
        parts = [figures["loss_nats_per_token"] for figures in row["skills"].values()]
        assert sum(parts) == pytest.approx(row["val_loss"])
    assert rows[-1]["val_floor"] == pytest.approx(outcome.evaluation.floor_nats_per_token)
    assert rows[-1]["skills"].keys() == outcome.evaluation.skills.scores.keys()
    assert (workplace / "fables" / "skills.png").stat().st_size > 10_000


def test_a_run_leaves_what_the_design_says(workplace: Path, ink):
    outcome, _ = train(workplace, "run")
    names = {path.name for path in (workplace / "run").iterdir()}
    assert {"config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md", "loss.png", ".lock"} <= names
    assert load_run_config(workplace / "run" / "config.yaml") == load_run_config(workplace / "tiny.yaml")
    rows = read_rows(workplace / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert {row["step"] for row in rows if "val_loss" in row} == {5, 10, 15, 20}
    assert set(rows[0]) == {
        "step",
        "tokens",
        "elapsed_seconds",
        "train_loss",
        "learning_rate",
        "gradient_norm",
        "tokens_per_second",
    }
    config = load_run_config(workplace / "tiny.yaml")
    batches = build_batches(config, prepare_data(config, workplace / "data"))
    assert rows[-1]["tokens"] == sum(batches.batch(i).inputs_BT.numel() for i in range(20 * 2))
    assert rows[-1]["val_loss"] < rows[4]["val_loss"] < 6
    assert outcome.evaluation.loss_nats_per_token == pytest.approx(rows[-1]["val_loss"])
    assert (workplace / "run" / "samples.md").read_text().count("## After ") == 2
    assert (workplace / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    state = read_checkpoint(workplace / "run" / "step-00000020").state
    assert state.val_loss == rows[-1]["val_loss"]


def test_only_the_last_checkpoints_and_the_best_are_kept(workplace: Path):
    train(workplace, "run", "checkpoint={every_steps: 2, keep_last: 2}", "evaluation.every_steps=6")
    rows = read_rows(workplace / "run" / "metrics.jsonl")
    best = min((row for row in rows if "val_loss" in row), key=lambda row: row["val_loss"])["step"]
    assert steps_in(workplace / "run") == sorted({18, 20, best})


def test_a_resumed_finished_run_says_so_and_changes_nothing(after: Path):
    run = after / "whole"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    outcome, notes = train(after, "whole", resume=True)
    assert notes == [f"{run} is finished, after 20 steps"]
    assert outcome.evaluation is not None
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_ends_at_the_first_evaluation_that_reaches_the_loss_that_is_wanted(after: Path):
    workplace, losses = after, val_losses(after / "whole")
    assert losses[5] > losses[10] > losses[15]  # those before the tenth end nothing
    reached = f"evaluation.stop_at_val_loss={losses[10]}"
    outcome, _ = train(workplace, "short", reached)
    assert outcome.step == 10
    assert steps_in(workplace / "short") == [5, 10]
    assert [row["step"] for row in read_rows(workplace / "short" / "metrics.jsonl")] == list(range(1, 11))
    assert "## After 10 steps" in (workplace / "short" / "samples.md").read_text()
    assert (workplace / "short" / "loss.png").exists()
    _, notes = train(workplace, "short", reached, resume=True)
    assert notes == [f"{workplace / 'short'} is finished, after 10 steps"]


@pytest.fixture
def overfits(workplace: Path) -> list[str]:
    """A run that learns one text and is evaluated on another, which it expects less and less after a few steps."""
    (workplace / "other.txt").write_text("owt eno dna eerht ruof evif xis neves thgie enin\n\n" * 4)
    corpus = 'corpus={type: text, files: [corpus.txt], separator: "\\n\\n", validation_files: [other.txt]}'
    return [corpus, "train.steps=40", "evaluation.every_steps=2"]


def val_losses(run_dir: Path) -> dict[int, float]:
    return {row["step"]: row["val_loss"] for row in read_rows(run_dir / "metrics.jsonl") if "val_loss" in row}


def test_a_run_ends_after_as_many_evaluations_without_a_new_best_as_patience_allows_wherever_it_was_cut(
    workplace: Path, overfits
):
    overrides = [*overfits, "evaluation.early_stopping_patience=3", "checkpoint={every_steps: 1, keep_last: 40}"]
    outcome, _ = train(workplace, "whole", *overrides)
    losses = val_losses(workplace / "whole")
    best = min(losses, key=losses.get)
    assert outcome.step == max(losses) == best + 3 * 2 < 40
    assert f"## After {outcome.step} steps" in (workplace / "whole" / "samples.md").read_text()
    for last in (outcome.step - 6, outcome.step - 1, outcome.step):
        cut = workplace / f"cut-{last}"
        shutil.copytree(workplace / "whole", cut)
        for step in range(last + 1, outcome.step + 1):
            shutil.rmtree(cut / f"step-{step:08d}")
        resumed, notes = train(workplace, cut.name, *overrides, resume=True)
        assert resumed == outcome
        assert_same_run(workplace / "whole", cut, outcome.step)
    assert notes == [f"{cut} is finished, after {outcome.step} steps"]


def test_a_run_that_overfits_says_so_once_and_is_evaluated_at_its_best_step_too(workplace: Path, overfits, caplog):
    outcome, _ = train(workplace, "run", *overfits)
    losses = val_losses(workplace / "run")
    best = min(losses, key=losses.get)
    warnings = [message for message in caplog.messages if "no longer falls" in message]
    assert len(warnings) == 1
    assert f"its best is {losses[best]:.4f}, at step {best};" in warnings[0]
    assert outcome.best_step == best < outcome.step == 40
    assert outcome.best.loss_nats_per_token == pytest.approx(losses[best])
    assert outcome.evaluation.loss_nats_per_token == pytest.approx(losses[40])


def test_a_text_that_will_be_read_often_is_a_warning_that_early_stopping_answers(workplace: Path, caplog):
    short = ["train.steps=60", "evaluation.stop_at_val_loss=100"]  # it has that at its first evaluation
    train(workplace, "often", *short)
    assert "the text will be read" in caplog.text
    assert "evaluation.early_stopping_patience" in caplog.text
    caplog.clear()
    _, notes = train(workplace, "stops", *short, "evaluation.early_stopping_patience=30")
    assert "the text will be read" not in caplog.text
    assert any("epochs at most: early stopping may end the run" in note for note in notes)
    caplog.clear()
    train(workplace, "once", "train.steps=2")
    assert caplog.text == ""


def test_each_line_of_a_log_file_but_the_last_says_how_long_the_run_will_take(after: Path, monkeypatch, capfd):
    monkeypatch.setattr(progress_bar, "SECONDS_BETWEEN_LINES", 0.0)
    train(after, "long")
    *lines, last = re.findall(r"^step \d+/20: .*$", capfd.readouterr().err, re.MULTILINE)
    assert len(lines) > 1
    assert all(re.search(r", [\d.]+ \w+ to go$", line) for line in lines)
    assert "to go" not in last
    assert_same_run(after / "whole", after / "long", 20)


def test_a_run_shows_its_first_sample_and_its_loss_beside_the_floor_while_it_trains(tmp_path: Path, capfd):
    few = ["corpus.size=40", "corpus.validation_fraction=0.25", "train.steps=6", "sample.every_steps=2"]
    config = load_run_config(Path(__file__).parents[2] / "configs" / "debug.yaml", few)
    train_run(config, tmp_path, tmp_path / "run", resume=False, overwrite=False, note=print)
    lines = capfd.readouterr().err
    sample = (tmp_path / "run" / "samples.md").read_text().split("> ")[1]
    assert f"step 2: it writes “{' '.join(sample.split())[:20]}" in lines
    assert re.search(r"step 6: validation loss [\d.]+ nats/token, [\d.]+ above the floor", lines)


def test_minutes_cut_the_steps_to_what_fits_once_and_resuming_keeps_them(workplace: Path, monkeypatch):
    steps_that_fit = train_run_module._steps_that_fit
    monkeypatch.setattr(train_run_module, "SECONDS_TO_JUDGE", 0.0)
    # It makes its trial updates, and the run must not show it.
    monkeypatch.setattr(train_run_module, "_steps_that_fit", lambda *run: steps_that_fit(*run) and 7)
    outcome, notes = train(workplace, "cut", minutes=3)
    assert outcome.step == 7
    assert "time    7 of 20 steps fit into 3 minutes" in notes
    assert load_run_config(workplace / "cut" / "config.yaml").train.steps == 7
    train(workplace, "as-configured", "train.steps=7")
    assert_same_run(workplace / "cut", workplace / "as-configured", 7)
    monkeypatch.setattr(train_run_module, "_steps_that_fit", lambda *_: 9)
    outcome, _ = train(workplace, "cut", minutes=1, resume=True)
    assert outcome.step == 7


def test_how_many_steps_fit_is_judged_when_the_machine_is_warm(workplace: Path, monkeypatch):
    """The first updates of a run take longer: taken for the rule, they would cut a run that fits."""
    config = load_run_config(workplace / "tiny.yaml", ["train.steps=100_000"])
    data = prepare_data(config, workplace / "data")
    seconds = iter([9.0] * 5 + [0.01] * 1000)
    trainer = SimpleNamespace(
        update=lambda: SimpleNamespace(seconds=next(seconds)), on_trial=nullcontext, model=None, world=ALONE
    )
    task = SimpleNamespace(evaluate=lambda _model, _tokens: None)
    assert 5900 < train_run_module._steps_that_fit(config, data, trainer, task, 1) <= 6000


def test_more_minutes_are_more_steps_and_never_more_than_the_config_asks_for(workplace: Path, monkeypatch):
    monkeypatch.setattr(train_run_module, "SECONDS_TO_JUDGE", 0.0)
    config = load_run_config(workplace / "tiny.yaml", ["train.steps=100_000"])
    data = prepare_data(config, workplace / "data")
    fitting = partial(train_run_module._steps_that_fit, config, data, *build_trainer(config, data))
    one, ten = fitting(0.1), fitting(10)
    assert 1 <= one < ten <= 100_000
    assert fitting(1e-9) == config.schedule.warmup_steps
    assert fitting(math.inf) == 100_000


def test_every_document_is_in_one_of_the_two_splits(place: Path):
    manifest = json.loads(next((place / "data").glob("*/manifest.json")).read_text())
    assert manifest["train"]["documents"] + manifest["validation"]["documents"] == VERSES.count("\n\n") + 1


def test_an_update_hashes_nothing(after: Path, monkeypatch):
    """SHA-256 is computed at the steps that save, and at no other."""
    steps, hashed_at = [0], set()
    real_update, real_sha256 = Trainer.update, step_directory.hashlib.sha256

    def counted_update(self):
        steps.append(self.step + 1)
        return real_update(self)

    def noted_sha256(*content):
        hashed_at.add(steps[-1])
        return real_sha256(*content)

    monkeypatch.setattr(Trainer, "update", counted_update)
    monkeypatch.setattr(step_directory.hashlib, "sha256", noted_sha256)
    train(after, "run", "evaluation.every_steps=20")
    assert hashed_at - {0} == {5, 10, 15, 20}

"""Shared by the tests of experiments: a base config that trains in a moment."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pellucid.config.load import load_run_config
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import Plan
from pellucid.experiments.results import RunResult
from pellucid.experiments.run_experiment import run_experiment
from pellucid.experiments.worker import make_run
from pellucid.model.build import build_model
from pellucid.recipe import prepare_data
from pellucid.runtime.precision import Precision
from pellucid.trained import TrainedModel
from tiny_run import VERSES

SHIPPED = Path(__file__).parents[2] / "configs/experiments"

BASE = """\
name: base
corpus: {type: fables, size: 40, world_size: 6, validation_fraction: 0.2}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 64, d_model: 8, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: cosine, warmup_steps: 2}
train: {steps: 4, batch_size: 2, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 2}
sample: {every_steps: 1000, n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 20}
"""


@pytest.fixture(scope="session")
def write_base() -> Callable[[Path], None]:
    """Puts base.yaml into a folder, and a text of which no truth is known."""

    def write(folder: Path) -> None:
        (folder / "base.yaml").write_text(BASE)
        (folder / "corpus.txt").write_text(VERSES)

    return write


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_base: Callable[[Path], None]) -> Path:
    """An empty folder to work in, with base.yaml."""
    write_base(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpora that the tests of a worker share."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def untrained(place: Path, data_root: Path) -> Callable[..., TrainedRun]:
    """A run to be measured whose model is as it begins. `texts`: the changes of its other texts, by name."""

    def built(*overrides: str, texts: dict[str, list[str]] | None = None) -> TrainedRun:
        config = load_run_config(Path("base.yaml"), overrides)
        data = prepare_data(config, data_root)
        torch.manual_seed(0)
        model = build_model(config.model, data.tokenizer.vocab_size).eval()
        trained = TrainedModel(config, data.tokenizer, model, 0, data.fingerprint)
        others = {name: load_run_config(Path("base.yaml"), [*overrides, *more]) for name, more in (texts or {}).items()}
        return TrainedRun(trained, data, Precision(torch.device("cpu"), torch.float32), others)

    return built


def run_result(label: str, seed: int, **numbers: Any) -> RunResult:
    """A result of these numbers; others are made up."""
    made_up = {"parameters": 1000, "non_embedding_parameters": 800, "flops": 1.5e9, "tokens": 384, "seconds": 60.0}
    made_up |= {"val_loss": 0.6, "bits_per_byte": 0.2, "floor": 0.5, "excess": 0.1, "overrides": {}}
    return RunResult(label=label, seed=seed, **made_up | numbers)


def make_runs(plan: Plan, data_root: Path = Path("data")) -> None:
    """Make all runs, in `runs`; in this process, as starting one for each would take seconds."""
    for run in plan.runs:
        make_run(run, run.directory(Path("runs")), data_root)


def make_report(plan: Plan, data_root: Path = Path("data")) -> list[str]:
    """Write the report of finished runs into `report`, and return what was noted meanwhile."""
    notes: list[str] = []
    places = {"data_root": data_root, "folder": Path("runs"), "report_dir": Path("report")}
    run_experiment(plan, **places, jobs=1, note=notes.append)
    return notes


def own_code(name: str) -> ModuleType:
    """The NAME.py of a shipped experiment."""
    return OwnCode(SHIPPED / f"{name}.py").module

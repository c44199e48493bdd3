"""Every experiment that we ship runs, on a few tiny fables for a few steps.

The short form makes one variant of each kind, the long form all.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pellucid.config.experiment import load_experiment
from pellucid.experiments import measures
from pellucid.experiments.laws import bootstrap
from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.run_experiment import run_experiment
from pellucid.experiments.worker import make_run
from policy_run import make_policy_place

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs/experiments").glob("*.yaml"))

TINY = {
    "corpus.size": 50,
    "corpus.world_size": 3,
    "corpus.validation_fraction": 0.1,
    "tokenizer.vocab_size": 300,
    "model.context_length": 64,
    "model.d_model": 16,
    "model.n_layers": 1,
    "model.n_heads": 1,
    "model.d_ff": 8,
    "model.embedding_std": 0.02,
    "schedule.warmup_steps": 0,
    "train.steps": 2,
    "train.batch_size": 2,
    "train.precision": "fp32",
    "train.log_every_steps": 1,
    "evaluation.every_steps": 2,
    "evaluation.max_tokens": 64,
    "sample.n_samples": 1,
    "sample.max_new_tokens": 1,
}
TINY_AFTER_TRAINING = {  # of an experiment whose runs start from another
    "corpus": {"type": "instructions", "size": 24, "world_size": 3, "seed": 0, "validation_fraction": 0.25},
    "model.context_length": 96,
    "schedule": {"type": "constant"},
    "train.steps": 2,
    "train.batch_size": 2,
    "train.precision": "fp32",
    "train.log_every_steps": 1,
    "evaluation.every_steps": 1,
    "evaluation.max_tokens": 60,
    "sample.n_samples": 1,
}
TINY_LANGUAGE = {key: value for key, value in TINY.items() if key not in ("corpus.world_size", "model.context_length")}
TINY_ROLLOUTS = {"objective.group_size": 2, "objective.max_new_tokens": 12}
SMALLER = {  # instead of the values on a grid
    "model.d_model": [8, 16],
    "model.n_layers": [1, 2],
    "train.steps": [2, 4, 8, 16],
    "schedule.warmup_steps": [0, 1],
}
SMALLEST = {"train.steps": [2, 8], "schedule.warmup_steps": [1], "objective.beta": [0.0, 0.1]}  # in the short form


def varied_keys(experiment: dict[str, Any]) -> set[str]:
    return set(experiment.get("grid", {})).union(*(run.get("set", {}) for run in experiment.get("runs", [])))


def kind(changes: Any) -> Any:
    """Equal for variants that differ in numbers alone."""
    if isinstance(changes, dict):
        return [(key, kind(value)) for key, value in sorted(changes.items())]
    return "number" if isinstance(changes, int | float) and not isinstance(changes, bool) else str(changes)


def as_written(changes: Any) -> Any:
    return changes


def keep_one_of_each(experiment: dict[str, Any], what: Callable[[Any], Any]) -> None:
    first = {str(what(run.get("set", {}))): run for run in reversed(experiment["runs"])}
    experiment["runs"] = [run for run in experiment["runs"] if run in first.values()]
    labels = {run["label"] for run in experiment["runs"]}
    for figure in experiment["figures"]:
        if "only" in figure:
            figure["only"] = [label for label in figure["only"] if label in labels]


def shrunken(path: Path, reader: Path, soak: bool) -> tuple[str, list[str]]:
    """The experiment with one seed and small values on its grid; and overrides that shrink what it does not vary."""
    experiment = yaml.safe_load(path.read_text())
    for run in experiment.get("runs", []):
        for key in ("train.steps", "schedule"):  # shrunken for all runs
            run.get("set", {}).pop(key, None)
    if experiment.get("runs"):
        keep_one_of_each(experiment, as_written if soak else kind)
    small = SMALLER if soak else SMALLER | SMALLEST
    base = yaml.safe_load((ROOT / experiment["base"]).read_text())
    experiment["base"] = str(ROOT / experiment["base"])
    tiny = TINY
    if base["corpus"]["type"] != "fables":
        tiny = TINY_LANGUAGE
    if "start_from" in base:
        tiny = TINY_AFTER_TRAINING | {"start_from": str(reader)}
        tiny |= TINY_ROLLOUTS if base["objective"]["type"] == "grpo" else {}
        experiment["measures"]["answers"] = 3
    experiment["seeds"] = experiment["seeds"][:1]
    for key in small.keys() & experiment.get("grid", {}).keys():
        experiment["grid"][key] = small[key]
    if writing := experiment.get("measures", {}).get("writing"):
        writing.update(beginnings=1, samples=1)
    varied = varied_keys(experiment)
    overrides = [
        f"{key}={value}" for key, value in tiny.items() if not any(f"{key}.".startswith(f"{each}.") for each in varied)
    ]
    return yaml.safe_dump(experiment, sort_keys=False), overrides


def test_the_experiments_are_there():
    names = [
        "accumulation",
        "belief",
        "brackets",
        "decoding",
        "depth_and_heads",
        "digits",
        "experts",
        "family",
        "family_rates",
        "grpo_beta",
        "hops",
        "in_context",
        "linear_attention",
        "looking_up",
        "lora_ranks",
        "norms",
        "optimizers",
        "positions",
        "scaling",
        "state_for_recall",
        "sums",
        "tokenizers",
        "trees",
    ]
    assert [path.stem for path in SHIPPED] == names
    assert all(load_experiment(path).config.name == path.stem for path in SHIPPED)


@pytest.fixture(scope="module")
def data_root(tmp_path_factory) -> Path:
    """The experiments share the corpora that they prepare."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def reader(data_root: Path) -> Path:
    """A run that reads instructions, for others to start from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data_root)
        make_policy_place(data_root)
    return data_root / "reader"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_runs_in_a_shrunken_form(path: Path, tmp_path, data_root, reader, monkeypatch, soak):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measures, "N_DOCUMENTS_OF_BELIEFS", 10)
    if not soak:  # to fit all 200 takes most of its time
        monkeypatch.setattr(bootstrap, "N_RESAMPLES", 2)
    small = tmp_path / path.name
    text, overrides = shrunken(path, reader, soak)
    small.write_text(text)
    plan = plan_experiment(small, overrides)
    for run in plan.runs:  # in this process: starting one for each would take a minute
        make_run(run, run.directory(tmp_path / "runs"), data_root)
    notes: list[str] = []
    folder, report_dir = tmp_path / "runs", tmp_path / "report"
    run_experiment(plan, data_root=data_root, folder=folder, report_dir=report_dir, jobs=1, note=notes.append)
    assert notes == [], "every figure is drawn"
    rows = list(csv.DictReader((tmp_path / "report/results.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == ["done"] * len(plan.runs)
    report = (tmp_path / "report/report.md").read_text()
    images = {image.stem for image in (tmp_path / "report").glob("*.png")}
    assert len(images) == len(plan.config.figures), report
    assert all(f"{image}.png" in report for image in images)

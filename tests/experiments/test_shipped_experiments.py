"""Every experiment that we ship runs, on a few tiny fables for a few steps, and its report says what its results say.

The short form makes two or four runs of those experiments that bring code of their own; the long form all.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from experiments.conftest import make_report, make_runs
from pellucid import train
from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.report import _what_was_varied, paragraphs
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
TINY_QUESTIONS = {
    **TINY_AFTER_TRAINING,
    "corpus": {"type": "hops", "queries": 2, "thoughts": "optional", "size": 200, "validation_fraction": 0.2},
    "corpus.most_hops": 3,
    "model.context_length": 36,
}
TINY_LANGUAGE = {key: value for key, value in TINY.items() if key not in ("corpus.world_size", "model.context_length")}
TINY_ROLLOUTS = {"objective.group_size": 2, "objective.max_new_tokens": 12}
SMALLER = {  # instead of the values on a grid
    "model.d_model": [8, 16],
    "model.n_layers": [1, 2],
    "train.steps": [2, 4, 8, 16],
    "schedule.warmup_steps": [0, 1],
    "corpus": [{"type": "hidden", "length": 30, "size": 50}, {"type": "chains", "length": 30, "size": 50}],
    "corpus.size": [50, 60],
}
SMALLER_CODE = {
    "N_DOCUMENTS = 1000": "N_DOCUMENTS = 10",
    "N_RESAMPLES = 200": "N_RESAMPLES = 2",  # to fit all 200 takes most of its time
    "\nBEGINNINGS = 125": "\nBEGINNINGS = 1",
    "\nSAMPLES = 4": "\nSAMPLES = 1",
    "\nDOCUMENTS = 200": "\nDOCUMENTS = 5",
    "N_QUESTIONS = 400": "N_QUESTIONS = 16",
    "N_SAMPLES, N_BEAMS = 16, 4": "N_SAMPLES, N_BEAMS = 2, 2",
    "N_TEXTS, ROWS = 1024, 128": "N_TEXTS, ROWS = 4, 4",
}
SMALLEST = {  # in the short form
    "train.steps": [2, 8],
    "corpus": [{"type": "hidden", "length": 30, "size": 50}],
    "schedule.warmup_steps": [1],
    "model.norm": ["rms_norm"],
    "model.position": [{"type": "learned"}, {"type": "rope"}],
}


def varied_keys(experiment: dict[str, Any]) -> set[str]:
    return set(experiment.get("grid", {})).union(*(run.get("set", {}) for run in experiment.get("runs", [])))


def keep_some_runs(experiment: dict[str, Any], soak: bool) -> None:
    """All that differ, or the first and the last."""
    different = list({str(run.get("set", {})): run for run in reversed(experiment["runs"])}.values())[::-1]
    experiment["runs"] = different if soak else different[:1] + different[1:][-1:]
    labels = {run["label"] for run in experiment["runs"]}
    for figure in experiment["figures"]:
        if "only" in figure:
            figure["only"] = [label for label in figure["only"] if label in labels]


def shrunken(path: Path, soak: bool, reader: Callable[[bool], Path]) -> tuple[str, list[str]]:
    """The experiment with one seed and small values on its grid; and overrides that shrink what it does not vary."""
    experiment = yaml.safe_load(path.read_text())
    for run in experiment.get("runs", []):
        for key in ("train.steps", "schedule"):  # shrunken for all runs
            run.get("set", {}).pop(key, None)
    if experiment.get("runs"):
        keep_some_runs(experiment, soak)
    small = SMALLER if soak else SMALLER | SMALLEST
    base = yaml.safe_load((ROOT / experiment["base"]).read_text())
    experiment["base"] = str(ROOT / experiment["base"])
    tiny = TINY
    if base["corpus"]["type"] != "fables":
        tiny = TINY_LANGUAGE | ({"corpus.digits": 1} if base["corpus"]["type"] == "sums" else {})
    if "start_from" in base:
        is_asked = base["corpus"]["type"] == "hops"
        tiny = (TINY_QUESTIONS if is_asked else TINY_AFTER_TRAINING) | {"start_from": str(reader(is_asked))}
        tiny |= TINY_ROLLOUTS if base["objective"]["type"] == "grpo" else {}
        if "measures" in experiment:
            experiment["measures"]["answers"] = 3
    experiment["seeds"] = experiment["seeds"][:1]
    for key in small.keys() & experiment.get("grid", {}).keys():
        experiment["grid"][key] = small[key]
    varied = varied_keys(experiment)
    overrides = [
        f"{key}={value}" for key, value in tiny.items() if not any(f"{key}.".startswith(f"{each}.") for each in varied)
    ]
    return yaml.safe_dump(experiment, sort_keys=False), overrides


@pytest.fixture(scope="module")
def reader(data_root: Path) -> Path:
    """A run that reads instructions, for others to start from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data_root)
        make_policy_place(data_root)
    return data_root / "reader"


@pytest.fixture(scope="module")
def thinker(data_root: Path) -> Path:
    """A run of hops that can be asked with and without a thought."""
    config = yaml.safe_load((ROOT / "configs/languages/hops.yaml").read_text())
    changes = {**TINY, **TINY_QUESTIONS, "model.d_model": 16, "model.n_layers": 1, "model.n_heads": 2}
    changes = {key: value for key, value in changes.items() if key not in ("corpus.world_size", "model.d_ff")}
    (data_root / "thinker.yaml").write_text(yaml.safe_dump(config))
    train(data_root / "thinker.yaml", data_root / "thinker", overrides=changes, data_dir=data_root)
    return data_root / "thinker"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_runs_in_a_shrunken_form(path: Path, tmp_path, data_root, request, monkeypatch, soak):
    code = path.with_suffix(".py")
    if not soak and not code.exists():
        pytest.skip("what it measures and draws, others do too: make soak")
    monkeypatch.chdir(tmp_path)
    if code.exists():
        text = code.read_text("utf-8")
        for as_shipped, smaller in SMALLER_CODE.items():
            text = text.replace(as_shipped, smaller)
        (tmp_path / code.name).write_text(text, "utf-8")
    small = tmp_path / path.name
    text, overrides = shrunken(path, soak, lambda asked: request.getfixturevalue("thinker" if asked else "reader"))
    small.write_text(text)
    plan = plan_experiment(small, overrides)
    make_runs(plan, data_root)
    assert make_report(plan, data_root) == [], "every figure is drawn"
    rows = list(csv.DictReader((tmp_path / "report/results.csv").read_text().splitlines()))
    assert [row["status"] for row in rows] == ["done"] * len(plan.runs)
    report = (tmp_path / "report/report.md").read_text()
    images = {image.stem for image in (tmp_path / "report").glob("*.png")}
    assert len(images) == len(plan.config.figures), report
    assert all(f"{image}.png" in report for image in images)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.usefixtures("trained_before")
def test_the_report_of_a_shipped_experiment_is_what_its_file_and_its_results_say(path: Path):
    """But for the figures, and what people wrote: `## What was varied` and the tables are made again."""
    plan = plan_experiment(Path("configs/experiments") / path.name)
    assert plan.config.name == path.stem
    assert path.read_text("utf-8").startswith("# yaml-language-server: $schema=../experiment_schema.json\n")
    folder = ROOT / "docs/experiments" / path.stem
    numbers = pd.read_csv(folder / "results.csv", index_col="label")
    _, heading, rest = (folder / "report.md").read_text("utf-8").partition("## What was varied")
    made = "\n\n".join([*_what_was_varied(plan), *paragraphs(numbers, plan.own)])
    assert made == heading + rest.partition("\n\n## Figures")[0]

"""Trackers are shown what a run writes, and nothing they do changes it. What real ones keep: tests/oracles."""

import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pellucid import recipe
from pellucid.checkpoint.step_directory import TENSOR_FILES
from pellucid.config.load import load_run_config, run_config_to_yaml
from pellucid.runs.resume import require_same_run
from pellucid.runs.train_run import train_run
from pellucid.runtime.distributed import World
from pellucid.training import tracker_programs
from pellucid.training.metrics import read_rows
from pellucid.training.tracker_programs import numbers
from pellucid.training.trackers import Trackers, build_trackers
from pellucid.training.trainer import Trainer

METHODS = ("log", "log_samples", "log_figure", "close")
# Two of four steps are evaluated and saved.
SHORT = ("train.steps=4", "evaluation.every_steps=2", "sample.every_steps=2", "checkpoint.every_steps=2")


class Recorder:
    """A tracker that remembers what it is shown, and fails in one method if asked to."""

    def __init__(self, fails_in: str = "", next_step: int = 0) -> None:
        self.next_step = next_step
        self.shown: dict[str, list] = {name: [] for name in METHODS}
        self.fails_in = fails_in

    def __getattr__(self, name: str):
        def show(*arguments):
            self.shown[name].append(arguments)
            if name == self.fails_in:
                self.fail()

        return show

    def fail(self) -> None:
        raise ConnectionError("no network\nsecond line")


def pretend(monkeypatch, name: str, **attributes) -> None:
    """A package of this name is installed."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__dict__.update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def train(workplace: Path, run_dir: str, *overrides: str, resume: bool = False):
    config = load_run_config(workplace / "tiny.yaml", overrides)
    options = {"resume": resume, "overwrite": False, "note": lambda line: None}
    return train_run(config, workplace / "data", workplace / run_dir, **options)


def tensors(run_dir: Path) -> list[bytes]:
    return [(run_dir / "step-00000004" / name).read_bytes() for name in TENSOR_FILES]


def test_a_tracker_is_shown_every_row_and_sample_and_at_the_end_the_figure(workplace: Path, monkeypatch):
    recorder, arguments = Recorder(), []
    pretend(monkeypatch, "tensorboard")
    monkeypatch.setattr(tracker_programs, "TensorBoard", lambda *given: arguments.append(given) or recorder)
    train(workplace, "run", *SHORT, "trackers=[tensorboard]", "train.log_every_steps=3")
    run = workplace / "run"
    assert arguments == [(run, (run / "config.yaml").read_text(), 1)]
    assert [row for (row,) in recorder.shown["log"]] == read_rows(run / "metrics.jsonl")
    assert [row["step"] for (row,) in recorder.shown["log"]] == [2, 3, 4]
    quoted = [(step, sample.replace("\n", "\n> ")) for step, (sample,) in recorder.shown["log_samples"]]
    text = "".join(f"## After {step} steps\n\n> {sample}\n\n" for step, sample in quoted)
    assert text == (run / "samples.md").read_text()
    assert recorder.shown["log_figure"] == [(4, run / "loss.png")]
    assert len(recorder.shown["close"]) == 1


def test_a_tracker_that_fails_is_one_warning_and_the_run_stays_the_same(workplace: Path, monkeypatch, caplog):
    train(workplace, "without", *SHORT)
    trackers = {name: Recorder(fails_in=name) for name in ("opening", *METHODS, "nothing")}
    openers = {name: partial(opened, tracker) for name, tracker in trackers.items()}
    monkeypatch.setattr(recipe, "build_trackers", lambda *_: Trackers(openers))
    assert train(workplace, "with", *SHORT).step == 4
    assert tensors(workplace / "with") == tensors(workplace / "without")
    said = [record.getMessage() for record in caplog.records if "trackers" in record.getMessage()]
    reason = "ConnectionError: no network"
    assert said == [
        f"trackers: {name} failed ({reason}) and is switched off; the run continues" for name in ("opening", *METHODS)
    ]
    for name in METHODS:
        assert len(trackers[name].shown[name]) == 1
    assert [row for (row,) in trackers["nothing"].shown["log"]] == read_rows(workplace / "with" / "metrics.jsonl")


def opened(tracker: Recorder, first_step: int) -> Recorder:
    if tracker.fails_in == "opening":
        tracker.fail()
    return tracker


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_tracker_that_is_not_installed_is_one_line_before_anything_is_written(
    workplace: Path, pellucid, monkeypatch, name: str
):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
    result = pellucid("train", "tiny.yaml", f"trackers=[{name}]")
    assert result.exit_code == 2
    fix = f"pip install 'pellucid[{name}]', or leave it out"
    assert result.stderr.splitlines()[-1] == f"error: trackers: {name} is not installed; {fix}"
    assert not (workplace / "checkpoints").exists()
    assert not (workplace / "data").exists()


def test_on_resume_a_tracker_is_shown_the_rows_that_it_lacks(workplace: Path, monkeypatch):
    crash_at_step_4(workplace, monkeypatch)
    trackers = {name: Recorder(next_step=step) for name, step in (("is new", 0), ("lost one", 2), ("has all", 3))}
    first_steps = []
    openers = {name: lambda step, each=each: first_steps.append(step) or each for name, each in trackers.items()}
    monkeypatch.setattr(recipe, "build_trackers", lambda *_: Trackers(openers))
    train(workplace, "run", *SHORT, resume=True)
    assert first_steps == [3, 3, 3]
    steps = {name: [row["step"] for (row,) in tracker.shown["log"]] for name, tracker in trackers.items()}
    assert steps == {"is new": [1, 2, 3, 4], "lost one": [2, 3, 4], "has all": [3, 4]}


def test_a_tracker_may_be_added_on_resume(workplace: Path, monkeypatch):
    config = load_run_config(workplace / "tiny.yaml")
    checkpoint = SimpleNamespace(config_yaml=run_config_to_yaml(config))
    require_same_run(config.model_copy(update={"trackers": ("wandb",)}), checkpoint, "step")


def crash_at_step_4(workplace: Path, monkeypatch, *overrides: str) -> None:
    """Leaves a run whose newest checkpoint is of step 2, and whose log goes on to step 3."""
    update = Trainer.update
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "update", lambda trainer: update(trainer) if trainer.step < 3 else 1 // 0)
        with pytest.raises(ZeroDivisionError):
            train(workplace, "run", *SHORT, *overrides)


def test_wandb_is_given_numbers_by_name_and_keeps_the_id_of_the_run_over_a_resume(workplace: Path, monkeypatch):
    started, logged, summary = [], {}, {}

    def log(values, *, step, commit):
        logged.setdefault(step, {}).update(values)

    def init(**settings):
        started.append(settings)
        return SimpleNamespace(log=log, summary=summary, starting_step=0, finish=lambda: None)

    def media(*_, **__):
        return "shown"

    pretend(monkeypatch, "wandb", init=init, Settings=dict, Table=media, Image=media)
    crash_at_step_4(workplace, monkeypatch, "trackers=[wandb]")
    train(workplace, "run", *SHORT, "trackers=[wandb]", resume=True)
    first, second = started
    assert first["id"] == second["id"] == (workplace / "run/wandb/run_id").read_text()
    assert second["resume"] == "allow"
    assert first["config"]["model"]["d_model"] == 16
    for row in read_rows(workplace / "run" / "metrics.jsonl"):
        assert {name: logged[row["step"]][name] for name in numbers(row)} == numbers(row)
    assert logged[4]["samples"] == "shown"
    assert summary == {"loss": "shown"}


def test_every_number_of_a_row_has_a_name():
    row = {
        "step": 3,
        "loss": 0.5,
        "gradient_norm": float("inf"),
        "skills": {"recall": {"accuracy": 1.0, "excess": None}},
    }
    assert numbers({**row, "load": [[1.0, 2.0], [3.0, 4.0]]}) == {
        "step": 3,
        "loss": 0.5,
        "skills/recall/accuracy": 1.0,
        "load/0/0": 1.0,
        "load/0/1": 2.0,
        "load/1/0": 3.0,
        "load/1/1": 4.0,
    }


def test_of_several_processes_the_first_alone_has_trackers(workplace: Path, monkeypatch):
    opened = []
    monkeypatch.setattr(tracker_programs, "TensorBoard", lambda *_: opened.append(1) or Recorder())
    for rank, n_opened in ((1, 0), (0, 1)):
        with build_trackers(["tensorboard"], workplace, "tiny", "", World(rank, 2)).opened(1, []):
            assert len(opened) == n_opened

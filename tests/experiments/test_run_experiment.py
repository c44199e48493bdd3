"""`pellucid experiment` as a whole: what it finds is true, a failure stops nothing else, and a kill changes nothing."""

import csv
import json
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pellucid.checkpoint.run_directory import find_step_directory, locked, steps_in
from pellucid.config.load import load_run_config
from pellucid.cost.build import cost_of
from pellucid.errors import RunInUseError
from pellucid.experiments import forecast
from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.progress import last_step
from pellucid.recipe import build_batches, evaluate, prepare_data
from pellucid.runs.cost_of_run import vocab_size_of
from pellucid.runtime.precision import resolve_precision
from pellucid.trained import load_trained_model
from processes import Command, command_line, forked_runs

COMPARE = """\
name: compare
question: What is found?
base: base.yaml
set: {train.steps: 300, evaluation.every_steps: 100}
runs:
  - {label: narrow}
  - {label: wide, set: {model.d_model: 16}}
  - {label: diverges, set: {optimizer: {type: sgd, lr: 1e30}, train.max_gradient_norm: null}}
  - {label: lost, set: {corpus: {type: text, files: [absent.txt]}}}
seeds: [3]
figures:
  - {type: bars, title: Excess, y: excess}
"""
TWO_RUNS = re.sub(r"  - {label: (diverges|lost).*\n", "", COMPARE)  # those that come to an end
LAST_STEP = 300


@pytest.fixture(scope="module")
def compared(tmp_path_factory, write_base) -> Path:
    """A folder where the experiment above has run, uninterrupted, two runs at a time, its report in `report/`."""
    place = tmp_path_factory.mktemp("compared")
    write_base(place)
    (place / "compare.yaml").write_text(COMPARE)
    done = command_line(place, "experiment", "compare.yaml", "--jobs", 2, "--report", "report", fault=forked_runs)
    (place / "stderr").write_text(done.stderr)
    (place / "exit_code").write_text(str(done.exit_code))
    return place


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as stream:
        return list(csv.DictReader(stream))


def run_dirs(place: Path) -> dict[str, Path]:
    """The folders of the runs, by the first word of their name."""
    return {path.name.split("-")[0]: path for path in (place / "checkpoints/experiments/compare/runs").glob("*")}


def test_what_the_table_says_of_a_run_is_what_its_checkpoint_says(compared: Path, monkeypatch):
    monkeypatch.chdir(compared)
    row = rows(Path("report/results.csv"))[1]
    trained = load_trained_model(find_step_directory(run_dirs(compared)["wide"], "latest"))
    data = prepare_data(trained.config, Path("data"))
    evaluation = evaluate(trained.config, data, trained.model, resolve_precision("cpu", "fp32"))
    cost = cost_of(trained.config.model, data.tokenizer.vocab_size)
    assert (row["label"], row["seed"], row["status"], row["model.d_model"]) == ("wide", "3", "done", "16")
    assert trained.config.seed == 3
    # A run of an experiment may have had fewer threads, which round otherwise.
    assert float(row["val_loss"]) == pytest.approx(evaluation.loss_nats_per_token, rel=1e-6)
    assert float(row["excess"]) == pytest.approx(evaluation.excess_nats_per_token, rel=1e-6)
    assert float(row["excess_fraction"]) == pytest.approx(evaluation.excess_fraction, rel=1e-6)
    assert float(row["left_to_learn"]) == pytest.approx(evaluation.left_to_learn, rel=1e-6)
    assert float(row["impossible"]) == pytest.approx(evaluation.impossible.mean, rel=1e-5)
    assert float(row["accuracy.spelling"]) == evaluation.skills.to_json()["spelling"]["accuracy"]
    batches = build_batches(trained.config, data)
    n_tokens = sum(batches.batch(i).inputs_BT.numel() for i in range(LAST_STEP))
    assert int(row["tokens"]) == n_tokens
    assert float(row["flops"]) == n_tokens * cost.training_flops_per_token.total
    n_weights = sum(weight.numel() for weight in trained.model.parameters())
    assert int(row["parameters"]) == n_weights
    assert int(row["non_embedding_parameters"]) == n_weights - trained.model.embeddings.embedding_VD.numel()
    result = json.loads((run_dirs(compared)["wide"] / "result.json").read_text())["result"]
    assert [row["step"] for row in result["curve"]] == [100, 200, 300]
    assert result["curve"][-1]["val_loss"] == result["val_loss"] == float(row["val_loss"])


def test_a_run_that_fails_is_reported_and_the_others_are_made(compared: Path):
    statuses = [row["status"] for row in rows(compared / "report/results.csv")]
    assert statuses[:2] == ["done", "done"]
    assert statuses[2].startswith("failed: step ")
    assert "lower optimizer.lr" in statuses[2]
    assert "absent.txt" in statuses[3]
    report = (compared / "report/report.md").read_text()
    assert "| narrow |" in report
    assert "## Runs that failed\n\n- diverges, seed 3: `step " in report
    assert str(compared) not in report
    assert "![Excess](excess.png)" in report
    assert {path.name for path in (compared / "report").iterdir()} == {"report.md", "results.csv", "excess.png"}
    assert (compared / "exit_code").read_text() == "6", "that of the first run that failed"
    shown = (compared / "stderr").read_text().replace("\r", "\n").splitlines()
    where, *ended, error = [line for line in shown if line.strip() and "%|" not in line and "B/s]" not in line]
    assert where.startswith("writing to ")
    assert sorted(line.split(", ")[0].strip() for line in ended) == ["diverges", "narrow", "wide"]
    fix = "see report/report.md and run the same command to try them again"
    assert error == f"error: experiment compare: 2 of 4 runs failed; {fix}"


def test_a_dry_run_tells_what_is_finished_and_that_is_not_made_again(compared: Path, monkeypatch, pellucid):
    monkeypatch.chdir(compared)
    predict_seven_seconds_a_step(monkeypatch)
    lines = pellucid("experiment", "compare.yaml", "--dry-run").stdout.splitlines()
    assert [line.split("  ")[-1] for line in lines[1:5]] == ["finished", "finished", "to run", "to run"]
    (compared / "two.yaml").write_text(TWO_RUNS)
    results = [run_dirs(compared)[name] / "result.json" for name in ("narrow", "wide")]
    before = [result.stat().st_mtime_ns for result in results]
    assert pellucid("experiment", "two.yaml").exit_code == 0
    assert [result.stat().st_mtime_ns for result in results] == before
    found, first = (rows(compared / folder / "results.csv") for folder in ("checkpoints/experiments/compare", "report"))
    assert found == [{name: row[name] for name in found[0]} for row in first[:2]]


def test_an_experiment_killed_and_stopped_finds_what_an_uninterrupted_one_finds(compared: Path, place: Path):
    (place / "compare.yaml").write_text(TWO_RUNS)
    words = ("experiment", "compare.yaml", "--jobs", 2)

    killed = Command(place, *words, fault=forked_runs)
    wait_until(lambda: any(last_step(folder) >= 10 for folder in both(place)))
    killed.process.kill()
    killed.wait()
    wait_until(lambda: all(is_free(folder) for folder in both(place)))  # the runs have noticed, saved and ended
    saved = [max(steps_in(folder), default=0) for folder in both(place)]
    assert 10 <= max(saved) < LAST_STEP

    narrow, wide = both(place)
    with locked(narrow):  # as if its old process still saved
        stopped = Command(place, *words, fault=forked_runs)
        wait_until(lambda: last_step(wide) >= min(saved[1] + 10, LAST_STEP))
    wait_until(lambda: last_step(narrow) > saved[0])
    stopped.process.terminate()
    done = stopped.wait()
    assert done.exit_code == 128 + signal.SIGTERM
    assert done.stderr.splitlines()[-1].endswith("pellucid experiment compare.yaml --jobs 2")
    assert not (place / "checkpoints/experiments/compare/results.csv").exists()
    assert all(is_free(folder) for folder in both(place))

    done = command_line(place, *words, fault=partial(forked_runs, fresh="narrow"))
    assert (done.exit_code, done.stdout) == (0, "checkpoints/experiments/compare/report.md\n")
    found = rows(place / "checkpoints/experiments/compare/results.csv")
    uninterrupted = rows(compared / "report/results.csv")[:2]
    for row, expected in zip(found, uninterrupted, strict=True):
        assert {**row, "seconds": ""} == {name: expected[name] for name in row} | {"seconds": ""}
    assert [path for path in place.rglob(".*") if path.name.startswith((".tmp-", ".trash-"))] == []


def both(place: Path) -> list[Path]:
    """The folders of the two runs that take a moment, narrow and wide; none before they are there."""
    folders = run_dirs(place)
    return [folders.get(name, place / "not there yet") for name in ("narrow", "wide")]


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def is_free(run_dir: Path) -> bool:
    """Whether no process trains in the folder."""
    try:
        with locked(run_dir):
            return True
    except RunInUseError:
        return False


def test_the_same_experiment_does_not_run_twice_at_once(place: Path, pellucid):
    (place / "compare.yaml").write_text(COMPARE)
    with locked(place / "checkpoints/experiments/compare"):
        result = pellucid("experiment", "compare.yaml")
    assert result.exit_code == 7
    assert result.stderr.endswith("\nerror: experiment compare: it is running already; wait for it to end\n")


def test_the_process_of_a_run_is_no_command_for_people(pellucid):
    shown = pellucid("--help").stdout
    assert "experiment " in shown
    assert "experiment-run" not in shown


def predict_seven_seconds_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "measure_machine", lambda device, dtype: None)
    monkeypatch.setattr(forecast, "step_seconds", lambda work, machine: 7.0)


def test_other_texts_of_which_there_are_too_few_are_found_before_anything_is_trained(place: Path, pellucid):
    (place / "lookup.yaml").write_text(
        """\
name: short
question: Are there enough?
base: base.yaml
set: {corpus: {type: lookup, size: 400, validation_fraction: 0.2}}
runs: [{label: lookup}]
measures: {texts: {one pair: {corpus.pairs: 1, corpus.queries: 1}}}
seeds: [0]
figures: []
"""
    )
    done = pellucid("experiment", "lookup.yaml")
    assert done.exit_code == 3
    assert "1 of 1 runs failed" in done.stderr
    report = (place / "checkpoints/experiments/short/report.md").read_text()
    assert "measures.texts.one pair: 80 held-out documents are" in report
    assert not list(place.glob("**/metrics.jsonl"))


def test_a_dry_run_tells_each_runs_cost_and_state_and_writes_nothing(place: Path, pellucid, monkeypatch):
    predict_seven_seconds_a_step(monkeypatch)
    (place / "compare.yaml").write_text(COMPARE)
    before = sorted(place.rglob("*"))
    dry = pellucid(
        "experiment", "compare.yaml", "train.steps=10", "tokenizer={type: bpe, vocab_size: 400}", "--dry-run"
    )
    assert sorted(place.rglob("*")) == before
    lines = dry.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["narrow", "wide", "diverges", "lost"]
    config = plan_experiment(Path("compare.yaml")).runs[0].config
    cost = cost_of(config.model, 400)
    flops = 10 * 2 * 64 * cost.training_flops_per_token.total
    counts = ["narrow", "3", f"{cost.parameters.total:,}", "10", "1,280", f"{flops:.2e}"]
    assert lines[1].split() == [*counts, "70", "s", "to", "run"]
    assert lines[5] == "4 runs, 1 at a time: about 5 min left, evaluations aside"


def test_the_whole_takes_as_long_as_the_busiest_place():
    totals = [forecast.total_seconds(seconds, 2) for seconds in ([3.0, 1.0, 2.0, 2.0], [1.0], [])]
    assert totals == [5.0, 1.0, 0.0]


def test_a_character_vocabulary_is_counted_without_preparing(place: Path, monkeypatch):
    config = load_run_config(Path("base.yaml"), ["tokenizer={type: char}", "corpus={type: text, files: [corpus.txt]}"])
    assert vocab_size_of(config) == len(set(Path("corpus.txt").read_text())) + 1  # and the end of a document
    assert not Path("data").exists()

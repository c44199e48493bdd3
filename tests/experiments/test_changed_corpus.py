"""An experiment whose rules are edited after some of its runs are made: its table does not mix two languages."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.conftest import make_report, make_runs
from own_rules import OWN_RUN, write_rules
from pellucid.errors import InputOutputError
from pellucid.experiments.plan import Plan, plan_experiment
from pellucid.experiments.run_experiment import FailedRunsError, _with_changed_corpora

EXPERIMENT = """\
name: edited
question: Of which language?
base: own.yaml
runs: [{label: own}]
seeds: [0]
measures: {texts: {longer: {corpus.validation_fraction: 0.03}}}
figures: [{type: bars, title: Excess, y: excess}]
"""
CHANGED = "run own: its corpus has changed since training; bring back the corpus of then, or delete runs"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    write_rules(1)
    Path("own.yaml").write_text(OWN_RUN)
    Path("edited.yaml").write_text(EXPERIMENT)
    plan = plan_experiment(Path("edited.yaml"))
    make_runs(plan)
    return plan


def test_a_finished_run_of_other_rules_is_not_put_into_the_table(plan):
    make_report(plan)
    table = Path("report/results.csv").read_text()
    assert "done" in table
    write_rules(3)
    with pytest.raises(FailedRunsError) as failed:
        make_report(plan)
    assert failed.value.exit_code == 4
    assert CHANGED.replace("run own", f"run {plan.runs[0].label}") in Path("report/report.md").read_text()
    assert "done" not in Path("report/results.csv").read_text()
    Path("own.rules").unlink()
    make_report(plan)
    assert Path("report/results.csv").read_text() == table, "a result stands, also where its rules are gone"


def test_a_corpus_that_cannot_be_had_is_asked_for_once(tmp_path, monkeypatch):
    asked = []

    def fail(*arguments):
        asked.append(arguments)
        raise InputOutputError("corpus.download", "no network", "try again")

    monkeypatch.setattr("pellucid.experiments.run_experiment.what_decides_tokens", fail)
    config = SimpleNamespace(corpus=None, tokenizer=None)
    run = SimpleNamespace(directory=lambda folder: folder, corpus_key="a", config=config, label="a")
    assert _with_changed_corpora([run, run], tmp_path, tmp_path) == {}
    assert len(asked) == 1

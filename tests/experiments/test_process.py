"""The process of a run: how it is started and stopped, what its end means, and how far it has come."""

import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.experiments.plan import PlannedRun, plan_experiment
from pellucid.experiments.process import outcome_of, start_run
from pellucid.experiments.progress import Work, last_step
from pellucid.experiments.results import Failure

ONE_RUN = """\
name: one
question: Does it end?
base: base.yaml
runs: [{label: only}]
"""


@pytest.fixture
def process(place: Path, monkeypatch):
    """Starts a script of the shell in place of Python."""

    (place / "x.yaml").write_text(ONE_RUN)
    run = plan_experiment(Path("x.yaml")).runs[0]

    def start(script: str) -> tuple[subprocess.Popen[bytes], PlannedRun, Path]:
        program = place / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return start_run(run, place / "run", Path("data"), n_threads=3), run, place / "run"

    return start


@pytest.mark.parametrize(
    ("script", "message", "exit_code"),
    [
        ("echo working; echo 'error: here: this is wrong; fix it' >&2; exit 5", "here: this is wrong; fix it", 5),
        ("printf '50%%\\rerror: a: b; c\\n'; exit 2", "a: b; c", 2),
        ("echo Traceback; echo ZeroDivisionError: division by zero; exit 1", "ZeroDivisionError: division by zero", 1),
        ("kill -KILL $$", "the system ended this run's process, as it does where memory is scarce", 8),
        ("kill -SEGV $$", "this run's process was ended by SIGSEGV", 139),
        ("exit 0", "ended without a result", 1),
        ("echo error: $OMP_NUM_THREADS, $MKL_NUM_THREADS threads; exit 9", "3, 3 threads", 9),
    ],
)
def test_a_run_without_a_result_has_failed_for_a_reason(process, script, message, exit_code):
    assert outcome_of(*process(script)) == Failure(message, exit_code)


def test_a_process_is_given_its_plan_and_waits_on_its_input_until_it_is_told_to_stop(process, place: Path):
    started, run, run_dir = process("cat; echo error: its input has ended; exit 3")
    assert PlannedRun.model_validate_json((place / "run/plan.json").read_text()).label == "only"
    assert started.poll() is None
    started.terminate()
    assert outcome_of(started, run, run_dir) == Failure("this run's process was ended by SIGTERM", 143)


def test_the_last_step_is_that_of_the_last_whole_row(tmp_path: Path):
    assert last_step(tmp_path) == 0
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("")
    assert last_step(tmp_path) == 0
    metrics.write_text('{"step": 1}\n{"step": 12}\n{"step": 13')
    assert last_step(tmp_path) == 12
    metrics.write_text("".join(f'{{"step": {i}, "rest": "{"x" * 500}"}}\n' for i in range(1, 400)))
    assert last_step(tmp_path) == 399


def test_work_is_done_as_steps_are(tmp_path: Path):
    work = Work(tmp_path, steps=40, flops=1e6)
    assert work.done() == 0.0
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n')
    assert work.done() == 2.5e5

"""`pellucid experiment`: makes each run in a process of its own, then writes tables, figures and the report.

Finished runs are kept, interrupted ones continue, and a run that fails does not stop the others.
"""

import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pellucid.checkpoint.run_directory import find_step_directory, locked
from pellucid.checkpoint.step_directory import read_state
from pellucid.cost.build import training_flops
from pellucid.data.prepare import fingerprint_of
from pellucid.data.prepared import what_decides_tokens
from pellucid.errors import CheckpointError, PellucidError, RunInUseError
from pellucid.experiments.forecast import threads_of_each
from pellucid.experiments.measures import require_texts
from pellucid.experiments.plan import Plan, PlannedRun
from pellucid.experiments.process import outcome_of, start_run
from pellucid.experiments.progress import ExperimentBar, Work
from pellucid.experiments.report import require_own_report, write_report, written_conclusion
from pellucid.experiments.results import Failure, RunResult, read_result
from pellucid.experiments.table import results_csv
from pellucid.files import write_whole
from pellucid.recipe import prepare_data
from pellucid.training.interrupts import StopRequest, stop_requests

POLL_SECONDS = 0.2

Outcomes = dict[int, RunResult | Failure]  # of the runs that have ended, by their index in the plan


class FailedRunsError(PellucidError):
    """An error after all runs, some of which failed. The exit code is that of the first."""

    def __init__(self, name: str, failures: Sequence[Failure], n_runs: int, report: Path) -> None:
        what = f"{len(failures)} of {n_runs} runs failed"
        super().__init__(f"experiment {name}", what, f"see {report} and run the same command to try them again")
        self.exit_code = failures[0].exit_code


def run_experiment(
    plan: Plan, *, data_root: Path, folder: Path, report_dir: Path, jobs: int, note: Callable[[str], None]
) -> int | None:
    """Make the unfinished runs, `jobs` at a time, and write results.csv, figures and report.md.

    Returns the number of the signal that stopped it, if any: all runs are saved then, and the same call continues.
    Raises FailedRunsError at the very end, RunInUseError if the experiment is already running.
    """
    runs, name = plan.runs, plan.config.name
    report_dir.mkdir(parents=True, exist_ok=True)  # better to fail here than after the runs
    written_conclusion(report_dir)
    require_own_report(report_dir, plan.config)
    with _locked(name, folder):
        results = {i: read_result(run.directory(folder), run) for i, run in enumerate(runs)}
        finished = {i: result for i, result in results.items() if result is not None}
        changed = _with_changed_corpora([runs[i] for i in finished], data_root, folder)
        outcomes: Outcomes = {i: changed.get(runs[i].directory(folder), result) for i, result in finished.items()}
        todo = _prepare(runs, outcomes, data_root, folder)

        if todo:
            with stop_requests() as stop, ExperimentBar(runs, todo) as bar:
                _make_runs(bar, outcomes, data_root, jobs, stop)
            if stop.signal_number is not None:
                return stop.signal_number
        in_order = [outcomes[i] for i in range(len(runs))]
        write_whole(report_dir / "results.csv", results_csv(runs, in_order))
        report = write_report(plan, in_order, report_dir, note)
    if failures := [outcome for outcome in in_order if isinstance(outcome, Failure)]:
        raise FailedRunsError(name, failures, len(runs), report)
    return None


@contextmanager
def _locked(name: str, folder: Path) -> Iterator[None]:
    try:
        with locked(folder):
            yield
    except RunInUseError as error:
        raise RunInUseError(f"experiment {name}", "it is running already", "wait for it to end") from error


def _with_changed_corpora(finished: Sequence[PlannedRun], data_root: Path, folder: Path) -> dict[Path, Failure]:
    """A Failure for each finished run whose corpus has changed since: a table must not mix two languages.

    A result whose corpus or checkpoint is gone stands: there is nothing to compare it with.
    """
    now: dict[str, str | None] = {}
    failures = {}
    for run in finished:
        directory = run.directory(folder)
        if run.corpus_key not in now:
            now[run.corpus_key] = None
            with suppress(PellucidError):  # a corpus that cannot be downloaded is not tried again for each run
                corpus, settings = what_decides_tokens(run.config.corpus, run.config.tokenizer, data_root)
                now[run.corpus_key] = fingerprint_of(corpus.identity, settings)
        with suppress(PellucidError):
            then = read_state(find_step_directory(directory, "latest")).data_fingerprint
            if now[run.corpus_key] not in (None, then):
                fix = f"bring back the corpus of then, or delete {directory} to train it again"
                error = CheckpointError(f"run {run.label}", "its corpus has changed since training", fix)
                failures[directory] = Failure(str(error), error.exit_code)
    return failures


def _prepare(runs: Sequence[PlannedRun], outcomes: Outcomes, data_root: Path, folder: Path) -> dict[int, Work]:
    """Prepare each corpus once, so that no two processes do, and return the runs left to do.

    A run whose corpus cannot be prepared gets a Failure, and so does one that would be scored on other texts of which
    there are too few.
    """
    prepared: dict[str, int | Failure] = {}  # vocabulary sizes
    todo = {}
    for i, run in enumerate(runs):
        if i in outcomes:
            continue
        if run.corpus_key not in prepared:
            try:
                prepared[run.corpus_key] = prepare_data(run.config, data_root).tokenizer.vocab_size
                require_texts(run.texts)
            except PellucidError as error:
                prepared[run.corpus_key] = Failure(str(error), error.exit_code)
        vocab_size = prepared[run.corpus_key]
        if isinstance(vocab_size, Failure):
            outcomes[i] = vocab_size
        else:
            steps = run.config.train.steps
            flops = training_flops(run.config.model, vocab_size, steps * run.config.tokens_per_step)
            todo[i] = Work(run.directory(folder), steps, float(flops))
    return todo


def _make_runs(bar: ExperimentBar, outcomes: Outcomes, data_root: Path, jobs: int, stop: StopRequest) -> None:
    """Make the runs of the bar and add their outcomes; only some if a stop is requested.

    However it ends, it leaves no process behind: each is asked to save, and waited for.
    """
    waiting = deque(bar.todo)
    working: dict[int, subprocess.Popen[bytes]] = {}

    def end(i: int) -> RunResult | Failure:
        return outcome_of(working[i], bar.runs[i], bar.todo[i].run_dir)

    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                i = waiting.popleft()
                working[i] = start_run(bar.runs[i], bar.todo[i].run_dir, data_root, threads_of_each(jobs))
            bar.show(outcomes)
            time.sleep(POLL_SECONDS)
            if stop.signal_number is not None:
                return
            for i in [i for i, process in working.items() if process.poll() is not None]:
                outcomes[i] = end(i)
                del working[i]
                bar.announce(i, outcomes[i])
        bar.show(outcomes)
    finally:
        for process in working.values():
            process.terminate()
        for i in working:
            end(i)

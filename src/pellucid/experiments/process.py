"""Starts the process of one run, and reports how it ended."""

import os
import signal
import subprocess
from pathlib import Path

from pellucid.errors import OutOfMemoryError
from pellucid.experiments.plan import PLAN_FILE, PlannedRun
from pellucid.experiments.results import Failure, RunResult, read_result
from pellucid.files import write_whole
from pellucid.runtime.processes import command_of

LOG_FILE = "log.txt"


def start_run(run: PlannedRun, run_dir: Path, data_root: Path, n_threads: int) -> subprocess.Popen[bytes]:
    """Start `pellucid experiment-run` for one planned run, with its output in log.txt in the run's folder.

    It is a command like any other, so every failure ends in one `error: …` line and a documented exit code.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    write_whole(run_dir / PLAN_FILE, run.model_dump_json(indent=1) + "\n")
    with (run_dir / LOG_FILE).open("wb") as log:
        return subprocess.Popen(
            command_of("pellucid", "experiment-run", str(run_dir), str(data_root)),
            stdin=subprocess.PIPE,  # stays open and empty while the experiment lives: see worker.py
            stdout=log,
            stderr=subprocess.STDOUT,
            # PyTorch prefers MKL's number, which may be set where the experiment was started, to OpenMP's.
            env={**os.environ, "OMP_NUM_THREADS": str(n_threads), "MKL_NUM_THREADS": str(n_threads)},
            start_new_session=True,  # Ctrl-C in the terminal goes only to the experiment, which passes it on
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )


def outcome_of(process: subprocess.Popen[bytes], run: PlannedRun, run_dir: Path) -> RunResult | Failure:
    """Wait for a run to end; its result, or why it failed."""
    exit_code = process.wait()
    assert process.stdin is not None
    process.stdin.close()
    if exit_code == 0 and (result := read_result(run_dir, run)):
        return result
    if exit_code == -signal.SIGKILL:
        what = "the system ended this run's process, as it does where memory is scarce"
        return Failure(what, OutOfMemoryError.exit_code)
    if exit_code < 0:
        return Failure(f"this run's process was ended by {signal.Signals(-exit_code).name}", 128 - exit_code)
    return Failure(_error_line(run_dir / LOG_FILE) or "ended without a result", exit_code or 1)


def _error_line(log: Path) -> str | None:
    """The last `error: …` line of a log or, after an unforeseen failure, its last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return next(reversed(errors or lines), None)

"""Pellucid's command line in processes of its own, which can be killed.

A server that has imported PyTorch already forks each of them, so that a test may start hundreds. What they start
themselves comes from the same server.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from tiny_run import Result

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(  # Python has one server in a process, with one such list: other tests use it too
    [
        *("pytest", "torch._dynamo", "matplotlib.backends.backend_agg", "pellucid.cli"),
        *("pellucid.runs.train_run", "pellucid.training.plots", "pellucid.trained"),
        *("pellucid.experiments.run_experiment", "pellucid.experiments.worker"),
        *("torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel", "preloaded"),
    ]
)

HANGS_AFTER_SECONDS = 600  # however busy the machine: nothing takes so long unless it hangs

Fault = Callable[[], None]


class Command:
    """A command that runs in `folder`. `fault`, if any, is called in its process before it starts."""

    def __init__(self, folder: Path, *arguments: object, fault: Fault | None = None) -> None:
        self._output = folder / f".output-{os.getpid()}-{id(self)}"
        words = [str(argument) for argument in arguments]
        given = (start_server(), folder, words, str(self._output), fault)
        self.process: BaseProcess = _CONTEXT.Process(target=_run, args=given)
        self.process.start()

    def wait(self) -> Result:
        """Its exit code (negative: the signal that killed it), and what it printed."""
        self.process.join(HANGS_AFTER_SECONDS)
        hangs = self.process.is_alive()
        self.process.kill()
        self.process.join()
        out, err = (self._read_and_forget(stream) for stream in ("out", "err"))
        assert not hangs, f"hangs after {HANGS_AFTER_SECONDS} s: {err}"
        exit_code = self.process.exitcode
        self.process.close()
        assert exit_code is not None
        return Result(exit_code, out, err)

    def _read_and_forget(self, stream: str) -> str:
        file = Path(f"{self._output}.{stream}")
        with suppress(FileNotFoundError):  # killed before it could open it
            text = file.read_bytes().decode("utf-8", "replace")
            file.unlink()
            return text
        return ""


def start_server() -> dict[str, Any]:
    """Starts it, unless it runs. Returns what another process must know to ask it: Python 3.14 has a key as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # as a training has it for its helpers, before they import PyTorch
        forkserver.ensure_running()
    known = vars(forkserver._forkserver)
    return {name: known[name] for name in ("_forkserver_address", "_forkserver_authkey") if name in known}


def command_line(folder: Path, *arguments: object, fault: Fault | None = None) -> Result:
    """Runs a command to its end."""
    return Command(folder, *arguments, fault=fault).wait()


def fresh_process(folder: Path, *arguments: object, prelude: str) -> Result:
    """The command in a process that has imported nothing yet. `prelude` is Python that runs before it."""
    program = f"{prelude}\nfrom pellucid.cli import main; main()"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=folder,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=HANGS_AFTER_SECONDS,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


class ForkedRun:
    """As much of a subprocess.Popen as an experiment asks of its runs."""

    def __init__(self, words: list[str], *, stdout: IO[bytes], env: dict[str, str], **_: object) -> None:
        arguments = words[words.index("pellucid") + 1 :]
        log = Connection(os.dup(stdout.fileno()))
        stdin, self.stdin = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run_of_experiment, args=(Path.cwd(), arguments, stdin, log, env["OMP_NUM_THREADS"])
        )
        self._process.start()
        stdin.close()
        self.terminate = self._process.terminate

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode


def forked_runs(fresh: str | None = None) -> None:
    """No fault: the runs of an experiment come from the server too, for a fresh process of each takes seconds.

    Those with `fresh` in their command have one, as a user's do.
    """
    from pellucid.experiments import process

    def start(words: list[str], **named: Any) -> subprocess.Popen[bytes] | ForkedRun:
        is_fresh = fresh is not None and fresh in " ".join(words)
        return subprocess.Popen(words, **named) if is_fresh else ForkedRun(words, **named)

    process.subprocess = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)


def _run_of_experiment(folder: Path, arguments: list[str], stdin: Connection, log: Connection, threads: str) -> None:
    os.setsid()
    os.environ["OMP_NUM_THREADS"] = threads
    for number, file in enumerate((stdin, log, log)):
        os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    _main(folder, arguments)


def _run(server: dict[str, Any], folder: Path, arguments: list[str], output: str, fault: Fault | None) -> None:
    # Python would start a server for each process that starts others, and import PyTorch for it.
    vars(forkserver._forkserver).update(server, ensure_running=lambda: None)
    for number, stream in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{output}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    _main(folder, arguments, fault)


def _main(folder: Path, arguments: list[str], fault: Fault | None = None) -> None:
    import torch
    from matplotlib.figure import Figure

    from pellucid.cli import main

    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    # A third of a short run's time: figures are made and saved, but blank.
    Figure.draw = lambda self, renderer: None
    os.chdir(folder)
    sys.argv = ["pellucid", *arguments]
    if fault:
        fault()  # before there are threads: with them no process gets a namespace of its own
    torch.set_num_threads(n_threads())
    main()


def n_threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS", "1"))

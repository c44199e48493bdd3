"""Stand-ins for other processes, for tests of scripts: commands, pools and servers run in the tests' own process."""

import contextlib
import io
import logging
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pellucid.cli import main
from pellucid.config import load
from pellucid.config.run import RunConfig
from pellucid.runtime.processes import stop_signals

REAL_RUN = subprocess.run
SMALL: dict[str, dict[str, Any]] = {
    "corpus": {"size": 40, "world_size": 3, "validation_fraction": 0.2},
    "tokenizer": {"vocab_size": 400},
    "model": {"context_length": 256, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32},
    "schedule": {"warmup_steps": 0},
    "adapter": {"rank": 2},
    "objective": {"group_size": 2, "max_new_tokens": 8},
    "train": {"steps": 4, "batch_size": 2},
    "checkpoint": {"every_steps": 2},
}
ALWAYS: dict[str, dict[str, Any]] = {
    "train": {"precision": "fp32"},
    "evaluation": {"max_tokens": 60},
    "sample": {"n_samples": 1, "max_new_tokens": 2},
}


def train_small(patch: pytest.MonkeyPatch) -> None:
    """Each config of a run that is read from now on becomes that of a tiny run, whatever the file and overrides say."""
    validated = load.validated

    def small(kind: Any, data: dict[str, Any], *rest: Any) -> Any:
        if kind is not RunConfig:
            return validated(kind, data, *rest)
        for name, values in SMALL.items():
            section = data.get(name) or {}
            section.update({key: value for key, value in values.items() if isinstance(section.get(key), (int, float))})
        for name, values in ALWAYS.items():
            data.setdefault(name, {}).update(values)
        return validated(kind, data, *rest)

    patch.setattr(load, "validated", small)


def run(
    command: list[Any], cwd: Path | str = ".", *, check: bool = False, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run: `pellucid …` and `python -c …` in this process, `make demo` as the commands that it makes."""
    arguments = [os.fspath(part) for part in command]
    if arguments[:2] == ["make", "demo"]:
        lines = REAL_RUN(["make", "-n", "demo"], cwd=cwd, check=True, capture_output=True, text=True).stdout
        ours = [shlex.split(line) for line in lines.splitlines() if line.startswith(".venv/bin/pellucid")]
        assert len(ours) == 3
        return [run(each, cwd, check=True) for each in ours][-1]
    if arguments[:3] == [sys.executable, "-m", "pellucid"]:
        work: Callable[[], object] = partial(pellucid, arguments[3:])
    elif Path(arguments[0]).name == "pellucid":
        work = partial(pellucid, arguments[1:])
    elif arguments[:2] == [sys.executable, "-c"]:
        work = partial(exec, arguments[2])
    else:
        return REAL_RUN(command, cwd=cwd, check=check, capture_output=capture_output, **options)
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before = Path.cwd()
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(printed):
            work()
    finally:
        os.chdir(before)
    printed.seek(0)
    return subprocess.CompletedProcess(arguments, 0, printed.read(), "")


def pellucid(arguments: list[str]) -> None:
    """The command line. An assertion fails if it does."""
    handlers = {number: signal.getsignal(number) for number in stop_signals()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pellucid", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    logging.getLogger("pellucid").handlers.clear()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert not ended.value.code, arguments


class Pool:
    """As ProcessPoolExecutor."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


class Command:
    """As subprocess.Popen of a command of `pellucid`, which ends before anyone looks twice."""

    def __init__(self, command: list[Any], cwd: Path | str, **options: Any) -> None:
        run(command, cwd, check=True)
        self.pid, self.returncode = os.getpid(), None

    def poll(self) -> int | None:
        before, self.returncode = self.returncode, 0
        return before


class Servers:
    """As multiprocessing's context and as Popen, for a function that serves until it is terminated."""

    Pipe = staticmethod(multiprocessing.Pipe)

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.running: list[uvicorn.Server] = []
        self.has_more = threading.Semaphore(0)
        made = uvicorn.Server.__init__

        def keep(server: uvicorn.Server, *arguments: Any, **options: Any) -> None:
            made(server, *arguments, **options)
            self.running.append(server)
            self.has_more.release()

        patch.setattr(uvicorn.Server, "__init__", keep)

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool = True) -> threading.Thread:
        thread = threading.Thread(target=target, args=args)
        thread.terminate = self.stop  # type: ignore[attr-defined]
        thread.wait = thread.join  # type: ignore[attr-defined]
        return thread

    def of_script(self, script: Any, command: list[str]) -> threading.Thread:
        """`python scripts/measure_server.py RUN --serve NAME --port PORT`, which is at work already."""
        _, _, source, _, name, _, port = command
        thread = self.Process(getattr(script, f"serve_{name}"), (Path(source), int(port)))
        thread.start()
        # FastAPI silences warnings while it makes an app, for the whole process: two at once would undo each other's.
        while not self.has_more.acquire(timeout=0.1):
            assert thread.is_alive()
        return thread

    def stop(self) -> None:
        for server in self.running:
            server.should_exit = True

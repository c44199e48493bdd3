"""Output of commands: results on stdout, all else on stderr; and stopping by a signal."""

import gc
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any


class Stopped(SystemExit):
    """Ctrl-C or SIGTERM outside of the training loop (which would save first)."""

    asked_for: int | None = None


def open_closed_streams() -> None:
    """Replace closed standard streams, as services and `>&-` start a program with, by ones that lead nowhere.

    Otherwise the next file that is opened gets the number of the closed one, and what others print ends up in it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def write(text: str) -> None:
    """Write text at once, as UTF-8 whatever the terminal's encoding."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def print_result(result: dict[str, Any] | str) -> None:
    """Print a table or a text or, for `--json`, exactly one JSON object."""
    write((result if isinstance(result, str) else json.dumps(result, indent=2)) + "\n")


def note(line: str) -> None:
    if is_first():
        with suppress(OSError):  # the terminal may be gone
            print(line, file=sys.stderr, flush=True)


def is_first() -> bool:
    """Whether this process prints: of several that torchrun started, only the first does."""
    return os.environ.get("RANK", "0") == "0"


def say_where_new(*roots: Path) -> None:
    """Print the folders that a command is about to create: it may have been started in the wrong place."""
    if new := [str(root.resolve()) for root in roots if not root.exists()]:
        note(f"writing to {' and '.join(new)}")


def typed() -> str:
    """The command line as typed, quoted for a shell, without --resume and --overwrite."""
    program = ["pellucid"] if shutil.which("pellucid") else [sys.executable, "-m", "pellucid"]
    return shlex.join([*program, *(each for each in sys.argv[1:] if each not in ("--resume", "--overwrite"))])


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Inside, PyTorch may be imported: without garbage collection; a signal that arrives meanwhile stops it at the end.

    After a second, a note tells whoever waits at a terminal what takes so long.
    PyTorch, when it looks for NumPy, swallows every exception, also that of a signal. Imports create many objects, all
    of which stay: collecting garbage among them would only take time.
    """
    is_first_time = "torch" not in sys.modules
    notice = Timer(1, note, ["loading PyTorch …"])
    if is_first_time and sys.stderr.isatty():
        notice.start()
    gc.disable()
    try:
        yield
    finally:
        notice.cancel()
        if is_first_time:
            gc.freeze()
        gc.enable()
    if Stopped.asked_for is not None:
        raise Stopped(Stopped.asked_for)

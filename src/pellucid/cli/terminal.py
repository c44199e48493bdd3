"""Between a command and the terminal: results on stdout, all else on stderr, and a stop that is asked for."""

from __future__ import annotations

import gc
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Stopped(SystemExit):
    """Ctrl-C or SIGTERM, outside of the training loop, which saves first."""

    asked_for: int | None = None


def write(text: str) -> None:
    """Text as it comes; bytes, so that no terminal setting can refuse a character."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def print_result(result: dict[str, Any] | str) -> None:
    """A table or a text, or what `--json` asks for: exactly one JSON object."""
    write((result if isinstance(result, str) else json.dumps(result, indent=2)) + "\n")


def note(line: str) -> None:
    if is_first():
        print(line, file=sys.stderr, flush=True)


def is_first() -> bool:
    """Whether this process prints: if torchrun started several, only the first one does."""
    return os.environ.get("RANK", "0") == "0"


def say_where_new(*roots: Path) -> None:
    """Away from where it usually works, a command says where it is about to write."""
    if new := [str(root.resolve()) for root in roots if not root.exists()]:
        note(f"writing to {' and '.join(new)}")


def typed() -> str:
    """The command that was typed, so that it survives a paste, without what `--resume` excludes."""
    program = ["pellucid"] if shutil.which("pellucid") else [sys.executable, "-m", "pellucid"]
    return shlex.join([*program, *(each for each in sys.argv[1:] if each not in ("--resume", "--overwrite"))])


@contextmanager
def heavy_imports() -> Iterator[None]:
    """A block that imports PyTorch, and that a stop which was asked for ends.

    PyTorch, when it looks for NumPy, swallows every exception: also the one that a signal raised. Python would look for
    garbage among the many objects that this makes, again and again, and once more at the end; but all of them stay.
    """
    is_first_time = "torch" not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if is_first_time:
            gc.freeze()
        gc.enable()
    if Stopped.asked_for is not None:
        raise Stopped(Stopped.asked_for)

"""Processes that help this one, whatever program it is: a command, a notebook, a plain script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def only_ours() -> Iterator[None]:
    """Processes that are started in this block import what they need of Pellucid, and nothing else.

    Python would first have them run the user's script again: one without `if __name__ == "__main__"` would train
    again, and wait for its own parent. What they are asked to do must not lie in that script.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script

"""Helper processes, which must start safely from any program: a command, a notebook, a plain script."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_user_script() -> Iterator[None]:
    """Inside, processes start without running the user's script: they import only what they need of Pellucid.

    By default Python runs the script again in each: without `if __name__ == "__main__"`, it would train again, and wait
    for its own parent. So their work must not be a function of that script.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script

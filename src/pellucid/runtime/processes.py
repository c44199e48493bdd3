"""Helper processes, which must start safely from any program: a command, a notebook, a plain script."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

# `-m` would put the current folder first on sys.path, and `-c` puts "" there: a random.py of the user's would be
# imported in place of Python's. `-P` prevents that only from Python 3.11 on.
RUN_MODULE = """
import sys
sys.path[:] = [*filter(None, sys.path), sys.argv.pop(1)]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def stop_signals() -> list[signal.Signals]:
    """The signals that ask this process to stop: Ctrl-C's, the system's, a closed terminal's unless `nohup` is used."""
    both = [signal.SIGINT, signal.SIGTERM]
    if sys.platform == "win32" or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return both
    return [*both, signal.SIGHUP]


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in a new process, whatever files are in the current folder."""
    return [sys.executable, "-c", RUN_MODULE, str(Path(__file__).parents[2]), module, *arguments]


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

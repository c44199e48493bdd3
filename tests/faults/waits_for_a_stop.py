"""`python -m waits_for_a_stop`: the command line, whose eleventh update does not go on before a stop is asked for."""

import signal
import time

import strikes
from pellucid.cli import main

came: list[int] = []
install = signal.signal


def note(number, handler):
    """Installs a handler that also notes that it was called."""
    return install(
        number, (lambda *arguments: (came.append(number), handler(*arguments))) if callable(handler) else handler
    )


def wait() -> None:
    while not came:
        time.sleep(0.01)


signal.signal = note
strikes.at_point(wait, "update", 11)
main()

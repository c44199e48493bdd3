"""Ctrl-C and SIGTERM as a wish, not an accident: finish the step, save, then stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """`signal_number` is None until somebody asks the run to stop."""

    signal_number: int | None = None


class StoppedBySignal(Exception):
    """The run was asked to stop, has saved its state, and ends now."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(signal_number, step)
        self.signal_number, self.step = signal_number, step


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside, the first SIGINT or SIGTERM is noted; the second one ends the program at once."""
    request = StopRequest()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _frame: FrameType | None) -> None:
        request.signal_number = number
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Ctrl-C and SIGTERM as a wish, not an accident: finish the update, save, then stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StoppedBySignal(Exception):
    """The run was asked to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class StopRequest:
    """`signal_number` is None until somebody asks the run to stop."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._raises = False

    @contextmanager
    def ends_block(self) -> Iterator[None]:
        """A block that a stop request ends by raising StoppedBySignal: work that can be done again, as evaluation."""
        self._raises = True
        try:
            if self.signal_number is not None:
                raise StoppedBySignal(self.signal_number)
            yield
        finally:
            self._raises = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        self.signal_number = number
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        if self._raises:
            raise StoppedBySignal(number)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside, the first SIGINT or SIGTERM is noted; the second one ends the program at once."""
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

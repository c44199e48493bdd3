"""Ctrl-C, SIGTERM and a closed terminal (SIGHUP): finish the update, save, then stop."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from torch.distributed import is_torchelastic_launched

from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.processes import stop_signals


class StoppedBySignal(Exception):
    """The run was asked to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class StopRequest:
    """A request to stop: `signal_number` is None until this process or, after `agree`, any other rank gets a signal.

    Where several processes train, none stops in the middle of a collective operation.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.signal_number: int | None = None
        self._received: int | None = None
        self._raises = False

    def agree(self) -> None:
        """Find out whether any rank was asked to stop. Every rank must call this."""
        if self.world.size > 1:
            self.signal_number = self.world.largest(self._received or 0) or None

    @contextmanager
    def ends_block(self) -> Iterator[None]:
        """Inside, a stop request raises StoppedBySignal at once: for work that can be repeated, such as evaluation."""
        self._raises = self.world.size == 1
        try:
            if self.signal_number is not None:
                raise StoppedBySignal(self.signal_number)
            yield
        finally:
            self._raises = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: remember it, and let the next one end the program."""
        self._received = number
        if self.world.size == 1:
            self.signal_number = number
        # torchrun forwards the Ctrl-C that the terminal has already sent to all; it kills slow processes itself.
        next_time = signal.SIG_IGN if is_torchelastic_launched() else signal.SIG_DFL
        for handled in stop_signals():
            signal.signal(handled, next_time)
        if self._raises:
            raise StoppedBySignal(number)


@contextmanager
def stop_requests(world: World = ALONE) -> Iterator[StopRequest]:
    """Inside, the first signal to stop is remembered; the second one ends the program at once.

    Only the main thread may handle signals: in any other, they are left to the program.
    """
    request = StopRequest(world)
    numbers = stop_signals() if threading.current_thread() is threading.main_thread() else []
    before = {number: signal.signal(number, request.receive) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_parent() -> threading.Thread:
    """Start a thread that sends this process SIGTERM, so that it saves and stops, when its parent has ended.

    Standard input must be a pipe on which nothing is ever sent; it closes when the parent closes it or ends.
    The thread takes the pipe for itself: all others read an empty standard input.
    """
    # On Windows, libraries that touch standard input while a thread waits on it hang (numpy issue 24290).
    pipe = os.dup(sys.stdin.fileno())
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def wait() -> None:
        os.read(pipe, 1)
        os.close(pipe)
        signal.raise_signal(signal.SIGTERM)  # on Windows, os.kill would end the process at once, without saving

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    return waiting

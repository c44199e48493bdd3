"""Ctrl-C and SIGTERM as a wish, not an accident: finish the update, save, then stop."""

from __future__ import annotations

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


class StoppedBySignal(Exception):
    """The run was asked to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class StopRequest:
    """`signal_number` is None until somebody asks the run to stop: this process or, as soon as all ranks have agreed,
    any other of its world. Where several train, none stops in the middle of what they do together.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.signal_number: int | None = None
        self._received: int | None = None
        self._raises = False

    def agree(self) -> None:
        """Learns whether any rank was asked to stop. Every rank must come here."""
        if self.world.size > 1:
            self.signal_number = self.world.largest(self._received or 0) or None

    @contextmanager
    def ends_block(self) -> Iterator[None]:
        """A block that a stop request ends by raising StoppedBySignal: work that can be done again, as evaluation."""
        self._raises = self.world.size == 1
        try:
            if self.signal_number is not None:
                raise StoppedBySignal(self.signal_number)
            yield
        finally:
            self._raises = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        self._received = number
        if self.world.size == 1:
            self.signal_number = number
        # torchrun passes on the Ctrl-C that the terminal has sent to all; it ends those who take too long itself.
        next_time = signal.SIG_IGN if is_torchelastic_launched() else signal.SIG_DFL
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, next_time)
        if self._raises:
            raise StoppedBySignal(number)


@contextmanager
def stop_requests(world: World = ALONE) -> Iterator[StopRequest]:
    """Inside, the first SIGINT or SIGTERM is noted; the second one ends the program at once."""
    request = StopRequest(world)
    before = {number: signal.signal(number, request.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_with_parent() -> threading.Thread:
    """When the process that started this one is gone, stops this one as SIGTERM does: it saves first.

    Standard input must be a pipe on which nothing is ever sent; it closes when the other process closes it or ends.
    The thread that waits for that has it alone: others read an empty standard input.
    """
    # On Windows, libraries that look at standard input while a thread waits there hang (numpy issue 24290).
    pipe = os.dup(sys.stdin.fileno())
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def wait() -> None:
        os.read(pipe, 1)
        os.close(pipe)
        signal.raise_signal(signal.SIGTERM)  # not os.kill: on Windows it ends the process at once, and nothing is saved

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    return waiting

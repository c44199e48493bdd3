"""What is really kept: objects that are alive, counted by weak references, and bytes, counted by Python itself.

A weak reference knows whether its object is still there, without keeping it there. So nobody's word is needed.
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Alive:
    """How many objects of a class live now, how many lived at most, and how many bytes were kept at most."""

    def __init__(self) -> None:
        self.now, self.most, self.most_bytes = 0, 0, 0

    def born(self, thing: object) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(thing, self._died).atexit = False

    def _died(self) -> None:
        self.now -= 1


@contextmanager
def counted(kind: type) -> Iterator[Alive]:
    """Inside, all new objects of a class are counted while they live.

    Python's collector, which looks for objects that hold each other, sleeps meanwhile: what only it could free counts
    as alive, since nobody knows when it comes.
    """
    alive, plain, collects = Alive(), kind.__init__, gc.isenabled()

    def init(self: object, *arguments: object, **named: object) -> None:
        plain(self, *arguments, **named)
        alive.born(self)

    gc.disable()
    tracemalloc.start()
    kind.__init__ = init
    try:
        yield alive
    finally:
        kind.__init__ = plain
        alive.most_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if collects:
            gc.enable()

"""A cache of recent results."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T_ = TypeVar("T_")


class Cache(Generic[T_]):
    """A cache that drops the least recently used values when their total `size` (default: 1 each) exceeds `most`."""

    def __init__(self, most: int, size: Callable[[T_], int] = lambda _: 1) -> None:
        self._most, self._size = most, size
        self._values: OrderedDict[Hashable, T_] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, compute: Callable[[], T_]) -> T_:
        """The value of this key, computed if it is not cached. Raises the errors of `compute`."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = compute()
        with self._lock:
            self._values[key] = value
            while len(self._values) > 1 and sum(map(self._size, self._values.values())) > self._most:
                self._values.popitem(last=False)
        return value

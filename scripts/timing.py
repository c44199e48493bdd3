"""Timing of what is compared: all take turns, and the median over the turns counts."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

Key, Value = TypeVar("Key"), TypeVar("Value")


def seconds_of(work: Callable[[], object], times: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - started


class Seconds(NamedTuple):
    """What some work took: of CPU time, that of all threads of this process, and on the clock."""

    cpu: float
    clock: float


def cpu_and_clock(work: Callable[[], object], times: int = 1) -> Seconds:
    """As `seconds_of`, with the CPU time: programs that run beside this one take no part of it."""
    before = time.process_time()
    clock = seconds_of(work, times)
    return Seconds(time.process_time() - before, clock)


def take_turns(works: Mapping[Key, Callable[[], Value]], n: int) -> dict[Key, list[Value]]:
    """The values of each in n rounds, so that a busy moment of the machine hits all. One more round warms up."""
    rounds = [{name: work() for name, work in works.items()} for _ in range(n + 1)][1:]
    return {name: [each[name] for each in rounds] for name in works}


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios of neighbours."""
    return median(a / b for a, b in zip(ones, others, strict=True))

"""Keep freed memory for the next step of a training, or return it to the system, as a server does."""

import ctypes
import sys

# Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8


def keep_freed_memory() -> None:
    """Let the C library keep large freed blocks instead of returning them to the system (glibc on Linux only).

    A training step on a CPU frees and allocates the same hundreds of megabytes again and again, and the system zeroes
    every page that it hands out: a fifth of the time of a small model's step, and a twentieth of decoding 16 samples.
    """
    _set(_M_MMAP_MAX, 0)  # no separate mappings for large blocks: those always go back to the system
    _set(_M_TRIM_THRESHOLD, 2**31 - 1)
    _set(_M_TOP_PAD, 64 * 2**20)


def return_freed_memory() -> None:
    """Let the C library return large freed blocks at once, and its threads share small ones (glibc on Linux only).

    A server runs for days and answers in dozens of threads. Each would keep what it has freed for itself: after 5,000
    requests that was as much as all caches together. Call it before they start.
    """
    _set(_M_ARENA_MAX, 2)
    _set(_M_MMAP_THRESHOLD, 2**18)  # or it would rise to the largest block that was ever freed


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(parameter, value)

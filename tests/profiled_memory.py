"""The memory that PyTorch's profiler sees a computation hold."""

import gc
from collections.abc import Callable
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile


def most_bytes_held(work: Callable[[], object]) -> int:
    """The most that is held at one moment, beyond what was held before.

    Garbage is collected first: tensors of an earlier test that die meanwhile would count as memory given back.
    """
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(n_bytes for _, n_bytes in changes))

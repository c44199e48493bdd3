"""Functions that several ranks do together, in processes that stay: importing PyTorch takes longer than most tests."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pellucid.runtime.distributed import World

HANGS_AFTER = timedelta(minutes=10)


class Ranks:
    """`ranks(function, *arguments)` is what `function(world, *arguments)` gives on each rank, in their order."""

    def __init__(self, size: int, folder: Path) -> None:
        self.size, self.meeting = size, f"file://{folder}/meeting"
        # A process keeps its rank, as outside of tests: PyTorch remembers which part of a tensor a process has.
        spawn = multiprocessing.get_context("spawn")
        self.processes = [ProcessPoolExecutor(1, mp_context=spawn) for _ in range(size)]

    def __call__(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        ranks = [
            process.submit(_as_rank, rank, self.size, self.meeting, function, arguments)
            for rank, process in enumerate(self.processes)
        ]
        return [rank.result(HANGS_AFTER.total_seconds()) for rank in ranks]

    def end(self) -> None:
        for process in self.processes:
            process.submit(_part)
        for process in self.processes:
            process.shutdown()


def _as_rank(rank: int, size: int, meeting: str, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
    torch.set_num_threads(1)
    if not dist.is_initialized():  # they meet once: to meet is what takes long, and what fails on a busy machine
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=HANGS_AFTER)
    store = dist.distributed_c10d._get_default_store()
    return function(World(rank, size, rank, store=store), *arguments)


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()

"""Distributed training: several processes train one model together (docs/many_machines.md).

Each process is a *rank*, all of them are the *world*. Every rank holds the same weights, reads its share of an update's
rows and computes their gradient. The gradients are summed over all ranks, so all take the same step.

On one machine `pellucid train` starts the processes itself; `torchrun` starts those of several machines.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, start_processes
from tqdm import tqdm

from pellucid.errors import CONTINUE, ConfigError, LostProcessError
from pellucid.runtime.processes import stop_signals, without_user_script

# Other ranks wait for hours while a large corpus is prepared, but only minutes for a rank that hangs.
LONGEST_PREPARATION, LONGEST_SILENCE = timedelta(days=7), timedelta(minutes=10)
SHORTEST_PATIENCE = timedelta(seconds=60)  # to wait for a process on the same machine, which should answer at once
EARLIER_START = "has been started before"  # a key in torchrun's store
USE_LIBUV = sys.platform != "win32"  # PyTorch for Windows is built without it, and TCPStore takes it unless told
SECONDS_TO_DIE = 5.0  # to wait for a killed process to end

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """This process's rank among all processes of a training; alone by default.

    local_rank, node: the process on its machine, and the machine.   is_restart: whether torchrun has restarted it.
    store: for messages between ranks, connected or not.   helpers: the processes that this one has started.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    node: int = 0
    is_restart: bool = False
    store: Store | None = None
    helpers: ProcessContext | None = None

    @classmethod
    def of_torchrun(cls) -> World:
        """The world in torchrun's environment variables; alone if torchrun did not start this process."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        torchrun_store, rank, size = next(rendezvous("env://"))
        local_rank, node, restarts = (
            int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
        )
        # A machine counts only restarts after its own failures; the store has seen all of them.
        is_restart = restarts > 0 or torchrun_store.check([EARLIER_START])
        return cls(rank, size, local_rank, node, is_restart, store_of_this_start(torchrun_store, rank, size))

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that logs, samples and saves: one writer for each file."""
        return self.rank == 0

    def announce(self, topic: str, message: str) -> None:
        """Send a message to every rank that waits for this topic."""
        if self.store is not None:
            self.store.set(topic, message)

    def wait_for(self, topic: str) -> str:
        """The message that another rank has announced, or will announce, on this topic."""
        assert self.store is not None
        self.store.wait([topic], LONGEST_PREPARATION)
        return str(self.store.get(topic).decode())

    def first_on_machine(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, done by the first rank of each machine before the others, who then find it cached."""
        if self.size == 1:
            return work()
        topic = f"done on machine {self.node}"
        if self.local_rank > 0:
            self.wait_for(topic)
        result = work()
        if self.local_rank == 0:
            self.announce(topic, "")
        return result

    def require_helpers(self) -> None:
        """Wait until all processes that this one has started are ready. Raises LostProcessError if one has ended."""
        self.announce(f"rank {self.rank} is here", "")
        if self.helpers is not None:
            assert self.store is not None
            topics = [f"rank {rank} is here" for rank in range(self.size)]
            while not self.store.check(topics):
                if any(process.exitcode for process in self.helpers.processes):
                    raise LostProcessError("another process of this training", "it ended too soon", CONTINUE)
                time.sleep(0.01)

    def totals(self, numbers: Sequence[float]) -> list[float]:
        """The sum over all ranks of each number, the same on every rank."""
        summed = torch.tensor(numbers, dtype=torch.float64)
        self.sum_together([summed])
        return list(summed.tolist())

    def largest(self, number: int) -> int:
        """The largest number over all ranks, the same on every rank."""
        return int(max(self.totals([number if rank == self.rank else 0 for rank in range(self.size)])))

    def sum_together(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, in a single all-reduce of all of them, concatenated."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors]).to(device_of_exchanges())
        dist.all_reduce(flat)
        for tensor, summed in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def share_out(self, work: Callable[[Tensor], Tensor], stacks: Sequence[Tensor]) -> list[Tensor]:
        """work(stack) for each stack of N items: the ranks divide the items, and an all-gather collects the results."""
        if self.size == 1:
            return [work(stack) for stack in stacks]
        own = []
        for stack in stacks:
            n_each = -(-len(stack) // self.size)
            padding = stack.new_zeros(n_each * self.size - len(stack), *stack.shape[1:])
            own.append(work(torch.cat([stack, padding])[self.rank * n_each : (self.rank + 1) * n_each]))
        flat = torch.cat([done.flatten() for done in own])
        gathered = [torch.empty_like(flat) for _ in range(self.size)]
        dist.all_gather(gathered, flat)
        parts = [torch.split(flat_of_rank, [done.numel() for done in own]) for flat_of_rank in gathered]
        return [torch.cat([part[i].view_as(own[i]) for part in parts])[: len(stack)] for i, stack in enumerate(stacks)]


ALONE = World()


def store_of_this_start(torchrun_store: Store, rank: int, size: int) -> Store:
    """The part of torchrun's store that belongs to this start.

    torchrun keeps its store over a restart, and no rank may take an old message for a new one. So rank 0 draws a random
    name for the start, and gives it to each rank in answer to a random name from that rank, which has no old answer.
    """
    drawn = uuid4().hex
    if rank > 0:
        torchrun_store.set(f"question of rank {rank}", drawn)
        name = torchrun_store.get(f"answer to {drawn}").decode()
        torchrun_store.set(f"{name}: rank {rank} is here", "")
        return PrefixStore(name, torchrun_store)
    missing = set(range(1, size))
    while missing:
        for other in list(missing):
            if torchrun_store.check([f"question of rank {other}"]):  # perhaps an old one; answering it does no harm
                torchrun_store.set(f"answer to {torchrun_store.get(f'question of rank {other}').decode()}", drawn)
            if torchrun_store.check([f"{drawn}: rank {other} is here"]):
                missing.remove(other)
        time.sleep(0.01)
    torchrun_store.set(EARLIER_START, "")
    return PrefixStore(drawn, torchrun_store)


def device_of_exchanges() -> str:
    """The device on which tensors must be for the ranks to exchange them."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def divides(n_micro_batches: int, batch_size: int, n_processes: int) -> bool:
    """Whether `n_processes` can share the rows of an update equally."""
    if n_micro_batches % n_processes == 0:
        return True
    return n_processes % n_micro_batches == 0 and batch_size % (n_processes // n_micro_batches) == 0


def share_of_update(n_micro_batches: int, batch_size: int, world: World) -> list[tuple[int, slice]]:
    """The micro-batches of an update that this rank reads, and which of their rows.

    Whole micro-batches if there are enough for all ranks, else a part of one. So an update reads the same rows for any
    number of processes. Raises ConfigError if the rows cannot be divided equally.
    """
    if not divides(n_micro_batches, batch_size, world.size):
        what = f"{world.size} processes cannot share {n_micro_batches} micro-batches of {batch_size} rows equally"
        raise ConfigError("train.processes", what, "change train.batch_size or the number of processes")
    if n_micro_batches % world.size == 0:
        n_each = n_micro_batches // world.size
        return [(world.rank * n_each + i, slice(None)) for i in range(n_each)]
    micro_batch, part = divmod(world.rank, world.size // n_micro_batches)
    n_rows = batch_size * n_micro_batches // world.size
    return [(micro_batch, slice(part * n_rows, (part + 1) * n_rows))]


@contextmanager
def connected(world: World, device: torch.device) -> Iterator[None]:
    """Inside, the ranks can exchange tensors: by gloo between CPUs, by NCCL between GPUs, one for each rank.

    Raises LostProcessError if another rank has ended or no longer answers.
    """
    if world.size == 1:
        yield
        return
    world.require_helpers()
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.set_device(world.local_rank)
    try:
        dist.init_process_group(
            "nccl" if is_gpu else "gloo",
            store=world.store,
            rank=world.rank,
            world_size=world.size,
            timeout=LONGEST_SILENCE,
            device_id=torch.device("cuda", world.local_rank) if is_gpu else None,
        )
        yield
    except RuntimeError as error:  # gloo has no class of its own for its errors
        if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
            raise
        raise LostProcessError("another process of this training", "it no longer answers", CONTINUE) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def with_helpers(n_processes: int, work: Callable[[World], object]) -> Iterator[World]:
    """Start ranks 1 to n - 1, which do `work`, on this machine, sharing its cores. Yields the world of rank 0.

    When this process leaves the block, they are killed. Raises LostProcessError if one of them ends before.
    """
    n_threads = torch.get_num_threads()
    store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False, use_libuv=USE_LIBUV)
    threads_each = max(1, n_threads // n_processes)
    arguments = (n_processes, store.port, threads_each, work)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else helpers print stack traces if this process is killed
    with without_user_script():
        helpers = start_processes(  # type: ignore[no-untyped-call]
            _help, arguments, nprocs=n_processes - 1, join=False, daemon=True, start_method="spawn"
        )
    assert helpers is not None
    torch.set_num_threads(threads_each)
    try:
        yield World(0, n_processes, store=store, helpers=helpers)
        for process in helpers.processes:
            process.join(SECONDS_TO_DIE)
    except LostProcessError as error:
        raise with_its_cause(error, helpers, n_processes) from error
    finally:
        for process in helpers.processes:
            process.kill()
            process.join()
        torch.set_num_threads(n_threads)


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one, on every rank (all must call this); any other tensor as it is."""
    gathered: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a full tensor, if `like` is sharded; else the tensor."""
    if not hasattr(like, "placements"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor  # a second of imports

    assert isinstance(like, DTensor)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def _help(index: int, n_processes: int, port: int, n_threads: int, work: Callable[[World], object]) -> None:
    # A signal is for rank 0, which tells the others when to end: after the update, all at once.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    logging.disable()
    tqdm.set_lock(threading.RLock())  # tqdm's own lock is the system's, and would stay locked by a killed process
    torch.set_num_threads(n_threads)
    rank = index + 1
    store = TCPStore("127.0.0.1", port, None, is_master=False, timeout=SHORTEST_PATIENCE, use_libuv=USE_LIBUV)
    work(World(rank, n_processes, rank, store=store))


def with_its_cause(error: LostProcessError, helpers: ProcessContext, n_processes: int) -> LostProcessError:
    """An error that says which process ended by itself, and how; `error` itself, if none did."""
    try:
        helpers.join(timeout=SECONDS_TO_DIE, grace_period=1.0)
    except ProcessExitedException as end:
        how = f"it was ended by {end.signal_name}" if end.signal_name else f"it ended with exit code {end.exit_code}"
        return LostProcessError(f"process {end.error_index + 2} of {n_processes}", how, CONTINUE)
    except ProcessRaisedException as end:
        how = str(end).strip().splitlines()[-1]
        if LostProcessError.__name__ in how:  # it has lost this process, as this one has lost it
            return error
        return LostProcessError(f"process {end.error_index + 2} of {n_processes}", how, CONTINUE)
    return error

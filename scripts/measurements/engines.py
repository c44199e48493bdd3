"""Training in several processes: how fast, how much of the time they wait for each other, and other engines beside it.

Remakes: engines
Takes: 4 minutes
Needs: nothing; Hugging Face's engine is left out if `accelerate` is not installed

The demo's updates with 1, 2 and 4 processes of one thread each. The engines take turns, a few updates each, in the same
processes, on the same rows, with the same optimizers; a figure is the median of all turns.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from results import Entry
from runs import FABLES, at_once
from timing import seconds_of, take_turns
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.data.batches import Batch
from pellucid.objectives.objective import Forward, Loss
from pellucid.recipe import build_trainer, prepare_data
from pellucid.runtime.distributed import World
from pellucid.training.trainer import Trainer

PROCESSES = (1, 2, 4)
UPDATES = 5  # of each engine, in each of its turns
DATA = Path("data")

MakeTrainer = Callable[[RunConfig, Path, World], Trainer]


def measure(*, turns: int = 6) -> Iterator[Entry]:
    config = load_run_config(FABLES, ["corpus.size=3000", "train.device=cpu"])
    milliseconds: dict[int, dict[str, float]] = {}
    prepare_data(config, DATA)
    for n in PROCESSES:
        milliseconds[n] = at_once(n, milliseconds_of_engines, turns, config)
    yield Entry("engines", as_table(milliseconds, config.tokens_per_step), ["fables/shape"])


def as_table(milliseconds: dict[int, dict[str, float]], tokens: int) -> dict[str, dict[str, float]]:
    """From an update's time with so many processes and each engine, "no exchange" first."""
    table: dict[str, dict[str, float]] = {}
    for n, by_engine in milliseconds.items():
        own_work = by_engine["no exchange"]
        for engine, taken in list(by_engine.items())[1:]:
            rate = 1000 * tokens / taken
            alone = next(iter(table.values()))["tokens/s"] if table else rate
            table[f"{n} × {engine}"] = {
                "an update (ms)": taken,
                "of it exchanges (%)": 100 * (1 - own_work / taken),
                "tokens/s": rate,
                "efficiency (%)": 100 * rate / (n * alone),
            }
    return table


def with_ddp(config: RunConfig, data_root: Path, world: World) -> Trainer:
    """Pellucid: one all-reduce of all gradients, after the last micro-batch."""
    return build_trainer(config, prepare_data(config, data_root), world)[0]


def with_fsdp(config: RunConfig, data_root: Path, world: World) -> Trainer:
    """Pellucid: parameters gathered block by block."""
    sharded = config.model_copy(update={"train": config.train.model_copy(update={"parallel": "fsdp"})})
    return build_trainer(sharded, prepare_data(config, data_root), world)[0]


def with_pytorch(config: RunConfig, data_root: Path, world: World) -> Trainer:
    """DistributedDataParallel: gradients are averaged in buckets during the backward pass."""
    trainer = with_ddp(config, data_root, world)
    return _summed_by(DistributedDataParallel(trainer.model), trainer)


def with_accelerate(config: RunConfig, data_root: Path, world: World) -> Trainer:
    """Hugging Face: the model as `Accelerator.prepare` returns it."""
    from accelerate import Accelerator

    # It learns from torchrun's environment that there are several processes, of one thread each.
    variables = {"RANK": world.rank, "LOCAL_RANK": world.rank, "WORLD_SIZE": world.size, "OMP_NUM_THREADS": 1}
    os.environ |= {"MASTER_ADDR": "localhost", **{name: str(number) for name, number in variables.items()}}
    trainer = with_ddp(config, data_root, world)
    prepared = Accelerator(cpu=True).prepare(trainer.model)
    assert isinstance(prepared, DistributedDataParallel)
    return _summed_by(prepared, trainer)


def _summed_by(forward: Callable[[Tensor], Tensor], trainer: Trainer) -> Trainer:
    """Returns the trainer, changed so that `forward` has the gradients averaged over all ranks."""
    objective, size = trainer.objective, trainer.world.size

    def multiplied(forward: Forward, batch: Batch) -> Loss:
        loss = objective(forward, batch)
        return replace(loss, sum=size * loss.sum)

    trainer.forward, trainer.is_sharded, trainer.objective = forward, True, multiplied
    return trainer


class Unheard(World):
    """A rank that works as one of several, and exchanges nothing: what is left of an update is its own work."""

    def totals(self, numbers: Sequence[float]) -> list[float]:
        return [self.size * number for number in numbers]

    def sum_together(self, tensors: Sequence[Tensor]) -> None:
        pass

    def share_out(self, work: Callable[[Tensor], Tensor], stacks: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat([work(stack[:: self.size])] * self.size)[: len(stack)] for stack in stacks]


def with_no_exchange(config: RunConfig, data_root: Path, world: World) -> Trainer:
    """No engine: each process computes its own part, and exchanges nothing."""
    return with_ddp(config, data_root, Unheard(world.rank, world.size, world.local_rank))


ENGINES: dict[str, MakeTrainer] = {
    "no exchange": with_no_exchange,
    "ddp": with_ddp,
    "fsdp": with_fsdp,
    "DistributedDataParallel": with_pytorch,
    **({"accelerate": with_accelerate} if importlib.util.find_spec("accelerate") else {}),
}


def milliseconds_of_engines(rank: int, n: int, turns: int, config: RunConfig) -> dict[str, float]:
    """The time of an update with each engine, on one of n processes."""
    engines = list(ENGINES)[: 2 if n == 1 else None]
    trainers = {engine: ENGINES[engine](config, DATA, World(rank, n, rank)) for engine in engines}
    times = take_turns({engine: partial(turn_of, trainer) for engine, trainer in trainers.items()}, turns)
    return {engine: 1000 * median(chain(*of_turns)) for engine, of_turns in times.items()}


def turn_of(trainer: Trainer) -> list[float]:
    """Seconds of each update of a turn but the first, when memory and caches are still those of another engine."""
    dist.barrier()
    trainer.update()
    return [seconds_of(trainer.update) for _ in range(UPDATES)]

"""Training in several processes: how fast, how much of the time they wait for each other, and other engines beside it.

    python scripts/measure_processes.py --record

The demo's updates with 1, 2 and 4 processes of one thread each. The engines take turns, a few updates each, in the same
processes, on the same rows, with the same optimizers; a figure is the median of all turns. Hugging Face's engine is
left out if `accelerate` is not installed. About four minutes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from results import parser, print_table, record
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.data.batches import Batch
from pellucid.objectives.objective import Forward, Loss
from pellucid.recipe import build_trainer, prepare_data
from pellucid.runtime.distributed import World
from pellucid.training.trainer import Trainer

CONFIG = Path(__file__).parent.parent / "configs" / "fables.yaml"
PROCESSES = (1, 2, 4)
UPDATES = 5  # of each engine, in each of its turns

MakeTrainer = Callable[[RunConfig, Path, World], Trainer]


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
    told = {"RANK": world.rank, "LOCAL_RANK": world.rank, "WORLD_SIZE": world.size, "OMP_NUM_THREADS": 1}
    os.environ |= {"MASTER_ADDR": "localhost", **{name: str(number) for name, number in told.items()}}
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
    """What each process computes for itself."""
    return with_ddp(config, data_root, Unheard(world.rank, world.size, world.local_rank))


ENGINES: dict[str, MakeTrainer] = {
    "no exchange": with_no_exchange,
    "ddp": with_ddp,
    "fsdp": with_fsdp,
    "DistributedDataParallel": with_pytorch,
    **({"accelerate": with_accelerate} if importlib.util.find_spec("accelerate") else {}),
}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=6)
    options = arguments.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        config = load_run_config(CONFIG, ["corpus.size=3000", "train.device=cpu"])
        prepare_data(config, Path(folder))
        for n in PROCESSES:
            found = Path(folder) / f"{n}.json"
            spawn(measure, (n, options.turns, config, Path(folder), found), nprocs=n)
            milliseconds, tokens = json.loads(found.read_text(encoding="utf-8"))
            for engine in list(ENGINES)[1 : 2 if n == 1 else None]:
                rate = 1000 * tokens / milliseconds[engine]
                alone = next(iter(figures.values()))["tokens/s"] if figures else rate
                figures[f"{n} × {engine}"] = {
                    "an update (ms)": milliseconds[engine],
                    "of it exchanges (%)": 100 * (1 - milliseconds["no exchange"] / milliseconds[engine]),
                    "tokens/s": rate,
                    "efficiency (%)": 100 * rate / (n * alone),
                }
    print_table("processes", figures)
    if options.record:
        record("engines", figures, ["fables/shape"])


def measure(rank: int, n: int, turns: int, config: RunConfig, folder: Path, found: Path) -> None:
    """One of n processes. The first writes down the milliseconds of an update with each engine, and its tokens."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / f"meet-{n}").resolve().as_uri(), rank=rank, world_size=n)
    engines = list(ENGINES)[: 2 if n == 1 else None]
    trainers = {engine: ENGINES[engine](config, folder, World(rank, n, rank)) for engine in engines}
    milliseconds: dict[str, list[float]] = {engine: [] for engine in engines}
    tokens: list[int] = []
    for turn in range(turns + 1):
        for engine, trainer in trainers.items():
            dist.barrier()
            trainer.update()  # memory and caches are still those of another engine
            for _ in range(UPDATES):
                started = time.perf_counter()
                n_tokens = trainer.update().tokens
                if turn > 0:  # the first is for warming up
                    milliseconds[engine].append(1000 * (time.perf_counter() - started))
                    tokens.append(n_tokens)
    if rank == 0:
        medians = {engine: statistics.median(measured) for engine, measured in milliseconds.items()}
        found.write_text(json.dumps([medians, statistics.median(tokens)]), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""The cost of the model that a config describes. `runs/cost_of_run.py` adds that of training."""

import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, TypeVar

from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.cost.counts import Cost, count_cost
from pellucid.cost.meter import MemoryBytes, Work
from pellucid.model.build import build_model

logging.getLogger("torch._subclasses.fake_tensor").disabled = True  # it logs what it raises

Counts = TypeVar("Counts")


@dataclass(frozen=True)
class RunCost:
    """The cost of a run: its model, the work and memory of an update, and the number of updates."""

    model: Cost
    micro_batch_work: Work
    optimizer_work: Work
    memory_bytes: MemoryBytes
    micro_batches_per_step: int
    tokens_per_step: int
    steps: int

    @property
    def step_work(self) -> Work:
        """The work of one update: all its micro-batches, and the optimizer."""
        per_micro_batch, of_optimizer = astuple(self.micro_batch_work), astuple(self.optimizer_work)
        return Work(*(self.micro_batches_per_step * a + b for a, b in zip(per_micro_batch, of_optimizer, strict=True)))

    @property
    def training_flops_per_step(self) -> int:
        """The FLOPs of the model itself, forward and backward, which MFU counts."""
        return self.tokens_per_step * self.model.training_flops_per_token.total


def training_flops(config: ModelConfig, vocab_size: int, tokens: int) -> int:
    """The model's own FLOPs, forward and backward, to train on this many tokens, which MFU counts."""
    return tokens * cost_of(config, vocab_size).training_flops_per_token.total


@cache
def cost_of(config: ModelConfig, vocab_size: int) -> Cost:
    """The counted cost of the model that `build_model(config, vocab_size)` would build."""

    def counted(config: ModelConfig) -> Cost:
        with FakeTensorMode():
            return count_cost(build_model(config, vocab_size))

    return at_depth(config, counted)


def at_depth(config: ModelConfig, count: Callable[[ModelConfig], Counts]) -> Counts:
    """The counts of a model, extrapolated from one and two layers: all further layers cost as much as the second.

    So a decoder of 80 layers is counted as quickly as one of two.
    """
    if not isinstance(config, DecoderConfig) or config.n_layers <= 2:
        return count(config)
    n_layers = config.n_layers

    def deeper(a: Any, b: Any) -> Any:
        if isinstance(a, int):
            return a + (n_layers - 1) * (b - a)
        return type(a)(**{name: deeper(part, getattr(b, name)) for name, part in vars(a).items()})

    one, two = (count(config.model_copy(update={"n_layers": n})) for n in (1, 2))
    deep: Counts = deeper(one, two)
    return deep

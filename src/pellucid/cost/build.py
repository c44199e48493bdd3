"""From a config to its cost. What training adds to it: `training/cost_of_run.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, TypeVar

from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.config.model import DecoderConfig, ModelConfig
from pellucid.config.run import RunConfig
from pellucid.cost.counts import Cost, count_cost
from pellucid.cost.machine import Machine
from pellucid.cost.many_devices import Update
from pellucid.cost.meter import MemoryBytes, Work
from pellucid.cost.step_time import step_seconds
from pellucid.errors import ConfigError
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision

logging.getLogger("torch._subclasses.fake_tensor").disabled = True  # it logs what it raises

Counts = TypeVar("Counts")


@dataclass(frozen=True)
class RunCost:
    """What a run costs: its model, the work of an update, the memory that it takes, and how many there are."""

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
        each, last = astuple(self.micro_batch_work), astuple(self.optimizer_work)
        return Work(*(self.micro_batches_per_step * a + b for a, b in zip(each, last, strict=True)))

    @property
    def training_flops_per_step(self) -> int:
        """The FLOPs of the model itself, forward and backward: what MFU counts."""
        return self.tokens_per_step * self.model.training_flops_per_token.total


def training_flops(config: ModelConfig, vocab_size: int, tokens: int) -> int:
    """The model's own FLOPs, forward and backward, to train on so many tokens: what MFU counts."""
    return tokens * cost_of(config, vocab_size).training_flops_per_token.total


@cache
def cost_of(config: ModelConfig, vocab_size: int) -> Cost:
    """The counted cost of the model that `build_model(config, vocab_size)` would build."""

    def counted(config: ModelConfig) -> Cost:
        with FakeTensorMode():
            return count_cost(build_model(config, vocab_size))

    return at_depth(config, counted)


def at_depth(config: ModelConfig, count: Callable[[ModelConfig], Counts]) -> Counts:
    """What `count` finds for a model. A decoder's layers are alike, so each costs as much as the second.

    So a model of 80 layers is counted as quickly as one of two.
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


def one_update(config: RunConfig, cost: RunCost, twice: RunCost, precision: Precision, machine: Machine) -> Update:
    """An update on one such machine. `twice` is the cost with twice as many rows in a micro-batch.

    ConfigError if the model is no decoder: there are no layers to share out.
    """
    if not isinstance(config.model, DecoderConfig):
        what = f"the {config.model.type} has no layers to share out among devices"
        raise ConfigError("model.type", what, "leave out --devices, or give the config of a decoder")
    model, train, memory, parameters = config.model, config.train, cost.memory_bytes, cost.model.parameters
    blocks = parameters.attention + parameters.feed_forward
    block_bytes = blocks * memory.weights // parameters.total // model.n_layers
    more_activations = twice.memory_bytes.activations - memory.activations
    micro_batch, of_twice = (step_seconds(each.micro_batch_work, machine) for each in (cost, twice))
    return Update(
        rows=config.rows_per_micro_batch * train.gradient_accumulation_steps,
        rows_per_micro_batch=config.rows_per_micro_batch,
        tokens_per_row=model.context_length,
        n_layers=model.n_layers,
        n_kv_heads=model.n_kv_heads or model.n_heads,
        forward_passes=1 + train.gradient_checkpointing,
        weight_bytes=memory.weights,
        block_weight_bytes=block_bytes,
        gradient_bytes=memory.gradients,
        optimizer_bytes=memory.optimizer,
        direction_bytes=block_bytes * model.n_layers if config.optimizer.type == "muon" else 0,
        model_flops=cost.training_flops_per_step,
        fixed_activation_bytes=memory.activations - more_activations,
        activation_bytes_per_row=more_activations / config.rows_per_micro_batch,
        residual_bytes_per_row=model.context_length * model.d_model * precision.dtype.itemsize,
        seconds_per_micro_batch=2 * micro_batch - of_twice,
        seconds_per_row=(of_twice - micro_batch) / config.rows_per_micro_batch,
        optimizer_seconds=step_seconds(cost.optimizer_work, machine),
    )

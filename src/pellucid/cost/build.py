"""From a config to its cost. What training adds to it: `training.build.cost_of_run`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

from torch._subclasses.fake_tensor import FakeTensorMode

from pellucid.config.model import ModelConfig
from pellucid.cost.counts import Cost, count_cost
from pellucid.cost.meter import MemoryBytes, StepWork
from pellucid.model.build import build_model

logging.getLogger("torch._subclasses.fake_tensor").disabled = True  # it logs what it raises


@dataclass(frozen=True)
class RunCost:
    """What a run costs: its model, the memory that training it takes, the work of an update, and how many there are."""

    model: Cost
    memory_bytes: MemoryBytes
    step_work: StepWork
    tokens_per_step: int
    steps: int

    @property
    def training_flops_per_step(self) -> int:
        """The model's own, forward and backward: what MFU counts."""
        return self.tokens_per_step * self.model.training_flops_per_token.total


def training_flops(config: ModelConfig, vocab_size: int, tokens: int) -> int:
    """The model's own FLOPs, forward and backward, to train on so many tokens: what MFU counts."""
    return tokens * cost_of(config, vocab_size).training_flops_per_token.total


@cache
def cost_of(config: ModelConfig, vocab_size: int) -> Cost:
    """The counted cost of the decoder that `build_model(config, vocab_size)` would build."""
    with FakeTensorMode():
        return count_cost(build_model(config, vocab_size))

"""From a config to its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from pellucid.config.model import ModelConfig
from pellucid.config.run import RunConfig
from pellucid.cost.activations import MicroBatch
from pellucid.cost.counts import Cost, Shape, count_cost
from pellucid.cost.machine import measure_machine
from pellucid.cost.memory import MemoryBytes, count_memory
from pellucid.cost.step_time import StepWork, count_step_work, step_seconds
from pellucid.kernels.attention import LONGEST_EXPLICIT_ON_CPU
from pellucid.runtime.precision import Precision


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


def cost_of(config: ModelConfig, vocab_size: int) -> Cost:
    """The counted cost of the decoder that `build_model(config, vocab_size)` would build."""
    return count_cost(build_shape(config, vocab_size))


def build_shape(config: ModelConfig, vocab_size: int) -> Shape:
    return Shape(
        vocab_size=vocab_size,
        context_length=config.context_length,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads or config.n_heads,
        d_ff=config.d_ff or 4 * config.d_model,
        tied_embeddings=config.tied_embeddings,
        learned_positions=config.position.type == "learned",
        gated_feed_forward=config.activation == "swiglu",
        bias=config.bias,
        qk_norm=config.qk_norm,
        norm_bias=config.norm == "layer_norm" and config.bias,
        final_norm=config.norm_placement == "pre",
    )


def cost_of_run(config: RunConfig, vocab_size: int, *, device_type: str, dtype: torch.dtype) -> RunCost:
    """The counted cost of training as this config says, on such a device, with products in `dtype`."""
    train, optimizer = config.train, config.optimizer
    batch = build_micro_batch(
        config.model,
        vocab_size,
        batch_size=train.batch_size,
        recomputes_blocks=train.gradient_checkpointing,
        device_type=device_type,
        dtype=dtype,
    )
    return RunCost(
        model=cost_of(config.model, vocab_size),
        memory_bytes=count_memory(
            batch,
            optimizer.type,
            has_momentum=optimizer.type != "sgd" or optimizer.momentum > 0,
            decoding_number_bytes=torch.float32.itemsize if device_type == "cpu" else dtype.itemsize,
        ),
        step_work=count_step_work(batch, optimizer.type, train.gradient_accumulation_steps),
        tokens_per_step=batch.n_tokens * train.gradient_accumulation_steps,
        steps=train.steps,
    )


def predicted_seconds(config: RunConfig, vocab_size: int, precision: Precision) -> float:
    """How long training should take here, evaluations aside. Takes a second: it measures how fast the machine is."""
    cost = cost_of_run(config, vocab_size, device_type=precision.device.type, dtype=precision.dtype)
    return cost.steps * step_seconds(cost.step_work, measure_machine(precision.device, precision.dtype))


def build_micro_batch(
    config: ModelConfig,
    vocab_size: int,
    *,
    batch_size: int,
    recomputes_blocks: bool,
    device_type: str,
    dtype: torch.dtype,
) -> MicroBatch:
    """How a batch of full rows passes through the decoder that this config would build."""
    on_cpu = device_type == "cpu"
    return MicroBatch(
        shape=build_shape(config, vocab_size),
        batch_size=batch_size,
        number_bytes=dtype.itemsize,
        norm=config.norm,
        activation=config.activation,
        attention=attention_in_training(config, on_cpu=on_cpu, dtype=dtype),
        rotates=config.position.type == "rope",
        soft_cap=config.logit_soft_cap is not None,
        dropout=config.dropout > 0,
        on_cpu=on_cpu,
        recomputes_blocks=recomputes_blocks,
    )


def attention_in_training(config: ModelConfig, *, on_cpu: bool, dtype: torch.dtype) -> Literal["explicit", "fused"]:
    """Which way of computing attention the model takes; `auto` is `faster_attention`."""
    if config.attention != "auto":
        return config.attention
    is_short = config.context_length <= LONGEST_EXPLICIT_ON_CPU
    return "explicit" if on_cpu and dtype == torch.bfloat16 and is_short else "fused"

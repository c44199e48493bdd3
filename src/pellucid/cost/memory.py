"""The memory of training and of decoding (equation 14), counted before anything is built.

Weights, gradients and moments are float32, also when products are computed in bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pellucid.cost.activations import FLOAT32, MicroBatch, peak_bytes
from pellucid.cost.counts import Shape, count_parameters

OptimizerType = Literal["adamw", "muon", "sgd"]


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes, by kind. `training` is the sum of the first four; decoding needs weights, and the cache per position.

    The cache is per token and sequence. `checkpoint` is what a step directory's weights and moments take on disk;
    their names and a few small files (tokenizer, config, states of generators) come on top.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    training: int
    kv_cache_per_token: int
    checkpoint: int


def count_memory(
    batch: MicroBatch, optimizer: OptimizerType, *, has_momentum: bool, decoding_number_bytes: int
) -> MemoryBytes:
    """Memory of training on micro-batches like this, and of decoding with numbers of so many bytes."""
    weights = FLOAT32 * count_parameters(batch.shape).total
    moments = FLOAT32 * n_moments(batch.shape, optimizer, has_momentum=has_momentum)
    activations = peak_bytes(batch)
    return MemoryBytes(
        weights=weights,
        gradients=weights,
        optimizer=moments,
        activations=activations,
        training=2 * weights + moments + activations,
        kv_cache_per_token=decoding_number_bytes * 2 * batch.shape.n_layers * batch.shape.d_kv,
        checkpoint=weights + moments,
    )


def n_moments(shape: Shape, optimizer: OptimizerType, *, has_momentum: bool) -> int:
    """Numbers that the optimizer remembers: Adam two per weight, SGD one if it has momentum at all.

    Muon remembers one per weight of the blocks' matrices, and leaves all others to Adam.
    """
    n_parameters = count_parameters(shape).total
    if optimizer == "sgd":
        return n_parameters if has_momentum else 0
    in_blocks = shape.n_layers * sum(n * m for n, m in shape.attention_matrices + shape.feed_forward_matrices)
    return 2 * n_parameters - (in_blocks if optimizer == "muon" else 0)

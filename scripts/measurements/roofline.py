"""The least time that a step can take on this machine: a roofline (Williams, Waterman and Patterson 2009).

    limit = the larger of  operations / peak of large products  and  bytes needed / speed of reading memory

Operations are those of the model's matrix products, as `pellucid cost` counts them: attention with all pairs, also
those that the mask hides. Bytes are those that no program can do without if nothing stays in a cache from one step to
the next. Activations are not among them, as they may stay in one. `benchmark.py` measures both programs beside it,
`draw.py roofline` draws them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.config.model import DecoderConfig
from pellucid.cost.build import cost_of
from pellucid.cost.machine import fastest, measure_flops_per_second

ARRAY_BYTES = 2**29  # far more than caches hold
CHAIN_LENGTH = 100
# Of a weight, in float32: read forwards and backwards; its gradient written, and read by clipping and by AdamW, which
# reads and writes the weight and its two moments.
BYTES_OF_A_TRAINED_WEIGHT = 4 * (2 + 3 + 2 * 3)


@dataclass(frozen=True)
class Roof:
    """The most that the machine does, in products by number format and in reading memory; and the least cost of a call.

    A call is one operation of PyTorch, without gradients, on a row so short that there is next to nothing to compute.
    """

    flops_per_second: Mapping[torch.dtype, float]
    bytes_per_second: float
    seconds_per_call: float


@dataclass(frozen=True)
class Needs:
    """The operations and bytes that no step can do without, in the number format of its products."""

    flops: float
    n_bytes: float
    dtype: torch.dtype

    def seconds(self, roof: Roof) -> tuple[float, float]:
        """For the operations alone, and for the bytes alone; the larger is the limit."""
        return self.flops / roof.flops_per_second[self.dtype], self.n_bytes / roof.bytes_per_second


def measure_roof(device: torch.device, dtypes: Iterable[torch.dtype]) -> Roof:
    peaks = {dtype: measure_flops_per_second(device, dtype) for dtype in dtypes}
    return Roof(peaks, measure_reading(device), measure_seconds_per_call(device))


def measure_reading(device: torch.device) -> float:
    """Bytes per second: summing a large array takes as long as reading it."""
    array = torch.ones(ARRAY_BYTES // 4, device=device)
    return array.nbytes / fastest(array.sum, 0.5)


def measure_seconds_per_call(device: torch.device) -> float:
    """The time of one call, as the mean of three kinds that make up most of a step: a product, a sum and a norm."""
    x, weight = torch.ones(1, 16, device=device), torch.ones(16, 16, device=device)

    def chain() -> Tensor:
        y = x
        for _ in range(CHAIN_LENGTH):
            y = F.layer_norm(torch.mm(y, weight) + x, (16,))
        return y

    with torch.inference_mode():
        return fastest(chain, 0.1) / (3 * CHAIN_LENGTH)


def needs_of_training(config: DecoderConfig, vocab_size: int, n_tokens: int, dtype: torch.dtype) -> Needs:
    """The needs of an update with AdamW on so many tokens."""
    cost = cost_of(config, vocab_size)
    flops = n_tokens * cost.training_flops_per_token.total
    return Needs(flops, BYTES_OF_A_TRAINED_WEIGHT * cost.parameters.total, dtype)


def needs_of_decoding(
    config: DecoderConfig, vocab_size: int, n_sequences: int, n_tokens: int, dtype: torch.dtype
) -> Needs:
    """The needs of the next token of each sequence, as the mean over the first n_tokens. Weights and cache in `dtype`.

    A step reads every weight once for all sequences, and for each the keys and values so far; it writes those of its
    token. Of the table of positions it reads a row, which is left out.
    """
    cost = cost_of(config, vocab_size)
    length = (n_tokens + 1) / 2  # in the mean over 1, 2, … n_tokens positions, the token's own among them
    flops = cost.forward_flops_per_token
    flops_per_token = flops.total - flops.attention_pairs * (1 - length / config.context_length)
    weights = cost.parameters.total - cost.parameters.positions
    cached = 2 * config.n_layers * config.d_model * length
    return Needs(n_sequences * flops_per_token, dtype.itemsize * (weights + n_sequences * cached), dtype)


def shares(roof: Roof, calls: int, ours: tuple[Needs, float], theirs: tuple[Needs, float]) -> dict[str, float]:
    """A row of the table: what a step needs, the limits in ms, and how much of the larger is reached in its seconds."""
    (needs, seconds), (their_needs, their_seconds) = ours, theirs
    operations, memory = needs.seconds(roof)
    return {
        "GFLOP": needs.flops / 1e9,
        "MB": needs.n_bytes / 1e6,
        "calls": calls,
        "operations (ms)": 1e3 * operations,
        "memory (ms)": 1e3 * memory,
        "calls (ms)": 1e3 * calls * roof.seconds_per_call,
        "Pellucid (ms)": 1e3 * seconds,
        "Pellucid (%)": 100 * max(operations, memory) / seconds,
        "transformers (MB)": their_needs.n_bytes / 1e6,
        "transformers (ms)": 1e3 * their_seconds,
        "transformers (%)": 100 * max(their_needs.seconds(roof)) / their_seconds,
    }

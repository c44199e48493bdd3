"""Parameters and FLOPs of a model, by part (equations 12 and 13), counted from the model itself.

On fake tensors the model takes no memory, however large it is. The tests hold GPT-3's counts against the equations.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

from pellucid.model.language_model import LanguageModel

aten = torch.ops.aten
PRODUCTS_WITH_WEIGHTS = {aten.mm, aten.addmm}

FLOP_FORMULAS = flop_registry  # PyTorch's, by operation; fused attention takes the same inputs on a GPU and on a CPU
for direction in ("", "_backward"):
    on_gpu = getattr(aten, f"_scaled_dot_product_flash_attention{direction}")
    on_cpu = getattr(aten, f"_scaled_dot_product_flash_attention_for_cpu{direction}")
    FLOP_FORMULAS.setdefault(on_cpu, FLOP_FORMULAS[on_gpu])


def recurrent_flops(input_TBD: Sequence[int], *rest: Any, **_: Any) -> int:
    """FLOPs of a fused RNN, LSTM or GRU, from shapes: each token is multiplied by every matrix once.

    cuDNN gets all weights in a list, oneDNN the two matrices of one layer, then its biases.
    """
    weights = rest[0] if isinstance(rest[0], list) else rest[:2]
    n_factors: int = sum(weight[0] * weight[1] for weight in weights if len(weight) == 2)
    return 2 * input_TBD[0] * input_TBD[1] * n_factors


def recurrent_backward_flops(*arguments: Any, **options: Any) -> int:
    return 2 * recurrent_flops(*arguments, **options)


# An LSTM on a CPU, and all three on a GPU, are one operation; the others are made of separate products.
for fused in (aten.mkldnn_rnn_layer, aten._cudnn_rnn):
    if fused not in FLOP_FORMULAS:
        register_flop_formula(fused)(recurrent_flops)
for fused in (aten.mkldnn_rnn_layer_backward, aten._cudnn_rnn_backward):
    if fused not in FLOP_FORMULAS:
        register_flop_formula(fused)(recurrent_backward_flops)


@dataclass(frozen=True)
class Parameters:
    """Number of weights, by part (equation 12). A tied unembedding counts 0.

    active: without the experts that a token does not use.
    """

    embedding: int
    positions: int
    attention: int
    feed_forward: int
    recurrent: int
    norms: int
    unembedding: int
    total: int
    active: int


@dataclass(frozen=True)
class Flops:
    """Floating-point operations in matrix products, for one token of a full context (equation 13).

    A product of n x m by m x p numbers takes 2 n m p. `attention_pairs` grows with the length: the products of queries
    with keys, and of weights with values, for all T keys, also those that the mask hides.
    """

    attention_projections: int
    attention_pairs: int
    feed_forward: int
    recurrent: int
    unembedding: int
    total: int


@dataclass(frozen=True)
class Cost:
    """The cost of a model by itself, however it is trained.

    Training takes three times the forward pass: the backward pass has a product for each factor's gradient.
    """

    parameters: Parameters
    forward_flops_per_token: Flops
    training_flops_per_token: Flops


def count_cost(model: LanguageModel) -> Cost:
    """Parameters, and FLOPs per token at the full context."""
    forward = count_flops(model)
    training = Flops(**{part: 3 * flops for part, flops in vars(forward).items()})
    return Cost(count_parameters(model), forward, training)


def count_parameters(model: LanguageModel) -> Parameters:
    parts = dict.fromkeys((field.name for field in fields(Parameters)), 0)
    for name, parameter in model.named_parameters():
        parts[_part_of(name)] += parameter.numel()
        parts["total"] += parameter.numel()
    parts["active"] = parts["total"] - sum(layer.idle_parameters() for layer in model.sparse_layers())
    return Parameters(**parts)


PART_OF_PREFIX = {
    "embeddings.un": "unembedding",
    "embeddings.": "embedding",
    "positions.": "positions",
    "layers.": "recurrent",
    "logits": "embedding",  # a bigram's table
}


def _part_of(name: str) -> str:
    """The part that the parameter of this name belongs to; feed-forward by default."""
    if "norm." in name:
        return "norms"
    for start, part in PART_OF_PREFIX.items():
        if name.startswith(start):
            return part
    return "attention" if ".attention." in name else "feed_forward"


def count_flops(model: LanguageModel) -> Flops:
    """The FLOPs of the forward pass, per token."""
    T = model.context_length
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, T, dtype=torch.long, device=next(model.parameters()).device))
    flops_of = {name: Counter(flops) for name, flops in counter.get_flop_counts().items()}

    def in_blocks(part: str) -> Counter[object]:
        names = [f"{type(model).__name__}.blocks.{i}{part}" for i in range(len(model.blocks))]
        return sum((flops_of.get(name, Counter()) for name in names), Counter())

    total, blocks, attention = counter.get_total_flops(), in_blocks("").total(), in_blocks(".attention")
    recurrent = flops_of.get(f"{type(model).__name__}.layers", Counter()).total()
    projections = sum(attention[product] for product in PRODUCTS_WITH_WEIGHTS)
    parts = {
        "attention_projections": projections,
        "attention_pairs": attention.total() - projections,
        "feed_forward": blocks - attention.total(),
        "recurrent": recurrent,
        "unembedding": total - blocks - recurrent,
        "total": total,
    }
    return Flops(**{part: flops // T for part, flops in parts.items()})

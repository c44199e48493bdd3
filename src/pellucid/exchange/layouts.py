"""Layouts of tensors in classes of transformers: one row per module, used in both directions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import assert_never

from pellucid.config.model import BiasPlace

# same: as ours. side_by_side: matrices side by side, each transposed (GPT-2's Conv1D).
Layout = Literal["same", "side_by_side"]


@dataclass(frozen=True)
class Row:
    """Our modules and the one of theirs with their tensors; `{}` stands for the layer, then the expert.

    bias: whether it has one, or the key of config.json that says so.
    """

    ours: tuple[str, ...]
    theirs: str
    layout: Layout = "same"
    bias: bool | str = False


def bias_place(name: str) -> BiasPlace:
    """The place of a module or parameter of ours, as `model.bias` calls it."""
    parts: dict[str, BiasPlace] = {
        **dict.fromkeys(("W_Q", "W_K", "W_V"), "queries_keys_values"),
        "W_O": "attention_output",
        **dict.fromkeys(("W_1", "W_2", "W_gate"), "feed_forward"),
        **dict.fromkeys(("query_norm", "key_norm"), "query_key_norms"),
    }
    return next((place for part, place in parts.items() if part in name.split(".")), "norms")


@dataclass(frozen=True)
class Place:
    """Tensors of ours, and the tensor of theirs with the same numbers."""

    ours: tuple[str, ...]
    theirs: str
    layout: Layout = "same"


def places_of(row: Row, values: Mapping[str, Any], n_layers: int, n_experts: int) -> Iterator[Place]:
    """A place for each layer, expert and kind of parameter of the row; `values` are those of config.json."""
    has_bias = values[row.bias] if isinstance(row.bias, str) else row.bias
    n_braces = row.theirs.count("{}")
    for layer in range(n_layers if n_braces else 1):
        for expert in range(n_experts if n_braces == 2 else 1):
            for kind in ("weight", "bias") if has_bias else ("weight",):
                ours = tuple(f"{name.format(layer, expert)}.{kind}" for name in row.ours)
                yield Place(ours, f"{row.theirs.format(layer, expert)}.{kind}", row.layout)


def to_theirs(place: Place, parts: list[Tensor]) -> Tensor:
    match place.layout:
        case "same":
            return parts[0]
        case "side_by_side":
            return _transposed(torch.cat(parts)).contiguous()
        case _:
            assert_never(place.layout)


def to_ours(place: Place, tensor: Tensor) -> list[Tensor]:
    """The inverse of `to_theirs`."""
    match place.layout:
        case "same":
            return [tensor]
        case "side_by_side":
            return [
                part.clone(memory_format=torch.contiguous_format) for part in _transposed(tensor).chunk(len(place.ours))
            ]
        case _:
            assert_never(place.layout)


def _transposed(matrix_or_bias: Tensor) -> Tensor:
    return matrix_or_bias.mT if matrix_or_bias.ndim == 2 else matrix_or_bias

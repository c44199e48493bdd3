"""Names and layouts of tensors in classes of transformers: one description per module, used in both directions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pellucid.config.model import BiasPlace


@dataclass(frozen=True)
class ModuleNames:
    """Our modules and the one of theirs with their tensors; `{}` stands for the layer, then the expert.

    side_by_side: it holds our matrices beside each other, each transposed (GPT-2's Conv1D). head_by_head: it holds them
    one below the other, first all for the first head (GPT-NeoX). bias: whether it has one, or the key of config.json
    that says so.
    """

    ours: tuple[str, ...]
    theirs: str
    side_by_side: bool = False
    head_by_head: bool = False
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
class TensorNames:
    """Tensors of ours, and the tensor of theirs with the same numbers. n_heads: of one that holds them head by head."""

    ours: tuple[str, ...]
    theirs: str
    side_by_side: bool = False
    n_heads: int | None = None

    def to_theirs(self, tensors: list[Tensor]) -> Tensor:
        if self.n_heads is not None:
            heads = [each.reshape(self.n_heads, -1, *each.shape[1:]) for each in tensors]
            return torch.stack(heads, dim=1).flatten(0, 2)
        return _transposed(torch.cat(tensors)).contiguous() if self.side_by_side else tensors[0]

    def to_ours(self, tensor: Tensor) -> list[Tensor]:
        """The inverse of `to_theirs`."""
        if self.n_heads is not None:
            parts = tensor.reshape(self.n_heads, len(self.ours), -1, *tensor.shape[1:]).unbind(1)
            return [part.flatten(0, 1).clone() for part in parts]
        if not self.side_by_side:
            return [tensor]
        parts = _transposed(tensor).chunk(len(self.ours))
        return [part.clone(memory_format=torch.contiguous_format) for part in parts]

    def rows_to_theirs(self, rows: Tensor) -> Tensor:
        """In their order: rows of our matrices, each in the order of outputs, one matrix below the other."""
        return rows if self.n_heads is None else self.to_theirs(list(rows.chunk(len(self.ours))))

    def rows_to_ours(self, rows: Tensor) -> list[Tensor]:
        """The inverse, for each of our matrices."""
        return list(rows.chunk(len(self.ours))) if self.n_heads is None else self.to_ours(rows)


def tensor_names(
    module: ModuleNames, values: Mapping[str, Any], n_layers: int, n_experts: int
) -> Iterator[TensorNames]:
    """The tensors of the module, for each layer, expert and kind of parameter; `values` are those of config.json."""
    has_bias = values[module.bias] if isinstance(module.bias, str) else module.bias
    n_heads = values["num_attention_heads"] if module.head_by_head else None
    n_braces = module.theirs.count("{}")
    for layer in range(n_layers if n_braces else 1):
        for expert in range(n_experts if n_braces == 2 else 1):
            for kind in ("weight", "bias") if has_bias else ("weight",):
                ours = tuple(f"{name.format(layer, expert)}.{kind}" for name in module.ours)
                yield TensorNames(ours, f"{module.theirs.format(layer, expert)}.{kind}", module.side_by_side, n_heads)


def _transposed(matrix_or_bias: Tensor) -> Tensor:
    return matrix_or_bias.mT if matrix_or_bias.ndim == 2 else matrix_or_bias

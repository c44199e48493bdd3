"""Tensors of Gemma: its norms multiply by 1 + gain, and its embeddings by sqrt(D), as a text is read.

Gemma 2 divides scores by the root of a number of its own, not by sqrt(K): its queries make up for it, or, in Gemma 3,
the gains of their norms.

Shapes: D model, K head width.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors

Values = Mapping[str, Any]


def module_of(name: str) -> str:
    """The last module of a tensor's name: `q_proj` of `model.layers.0.self_attn.q_proj.weight`."""
    return name.rpartition(".")[0].rpartition(".")[2]


def from_shifted(values: Values, tensors: Tensors, queries: str = "q_proj") -> dict[str, Tensor]:
    """Gains and embeddings as they are used. With tied embeddings the last norm makes up for their multiplier.

    queries: the module by which queries grow.
    """
    scales = _scales(values, queries)
    return {
        name: (tensor.float() + int(module_of(name).endswith("norm"))) * scales.get(module_of(name), 1)
        for name, tensor in tensors.items()
    }


def to_shifted(values: Values, tensors: Tensors, queries: str = "q_proj") -> dict[str, Tensor]:
    """The inverse."""
    scales = _scales(values, queries)
    return {
        name: (tensor.float() / scales.get(module_of(name), 1) - int(module_of(name).endswith("norm"))).to(tensor.dtype)
        for name, tensor in tensors.items()
    }


def _scales(values: Values, queries: str) -> dict[str, float]:
    """By what the tensors of these modules are multiplied."""
    scale = sqrt(values["hidden_size"])
    tied = {"lm_head": scale, "norm": 1 / scale} if values["tie_word_embeddings"] else {}
    return {"embed_tokens": scale, queries: query_scale(values), **tied}


def query_scale(values: Values) -> float:
    """By what queries are multiplied, so that scores divided by sqrt(K) are theirs: 1 in most models."""
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    return sqrt(width / values.get("query_pre_attn_scalar", width))

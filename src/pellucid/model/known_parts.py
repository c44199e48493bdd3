"""The classes and functions that every other implementation of a decoder can compute.

Exported files, the page's JavaScript and the lean decoder compute these parts again in another form. They know no other
part, so they call `unknown_parts` first and never guess. List a new part once all of them can compute it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch.nn.functional as F
from torch import nn

from pellucid.kernels.attention import fused_attention
from pellucid.model.attention import MultiHeadAttention, explicit_attention
from pellucid.model.block import Block
from pellucid.model.build import FAST, PLAIN
from pellucid.model.decoder import Decoder
from pellucid.model.embeddings import SeparateEmbeddings, SoftCap, TiedEmbeddings
from pellucid.model.experts import Experts, Router
from pellucid.model.feed_forward import FeedForward, SwiGLU
from pellucid.model.linear_attention import LinearAttention
from pellucid.model.norms import LayerNorm, RMSNorm
from pellucid.model.positions import Learned, NoPositions, Rotary, Sinusoidal
from pellucid.model.residual import PostNorm, PreNorm
from pellucid.model.sliding_window import SlidingWindowAttention

CLASSES = {
    *(Decoder, nn.ModuleList, Block, PreNorm, PostNorm, nn.Linear, nn.Identity, LayerNorm, RMSNorm),
    *(TiedEmbeddings, SeparateEmbeddings, SoftCap, NoPositions, Learned, Sinusoidal, Rotary),
    *(MultiHeadAttention, LinearAttention, SlidingWindowAttention, FeedForward, SwiGLU, Experts, Router),
}
FUNCTIONS: set[Callable[..., Any]] = {
    *(vars(PLAIN).values()),
    *(vars(FAST).values()),
    *(explicit_attention, fused_attention, F.relu, F.gelu, NoPositions.rotate, Rotary.rotate),
}


def unknown_parts(model: nn.Module) -> list[str]:
    """Names of the classes and functions in a model, its own class included, that are not listed above."""
    unknown: dict[str, None] = {}
    for module in model.modules():
        if type(module) not in CLASSES:
            unknown[type(module).__name__] = None
            continue
        functions = [function for value in vars(module).values() if callable(function := _plain(value))]
        unknown |= {_name(function): None for function in functions if function not in FUNCTIONS}
    return list(unknown)


def _plain(value: Any) -> Any:
    """The function under partials and bound methods; other values as they are."""
    while isinstance(value, (partial, MethodType)):
        value = value.func if isinstance(value, partial) else value.__func__
    return value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)

"""What a decoder is made of, by class and function: for whoever computes a model again in another form.

An exported file, the page's JavaScript and the lean decoder restate what these parts compute. Of a part that is not
listed they know nothing, so they ask `unknown_parts` first and never guess. A new part is listed once all of them can
compute it.
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
    """Names of the classes and functions in it, itself included, that are not among the known ones."""
    found: dict[str, None] = {}
    for module in model.modules():
        if type(module) not in CLASSES:
            found[type(module).__name__] = None
            continue
        functions = [plain for value in vars(module).values() if callable(plain := _plain(value))]
        found |= {_name(function): None for function in functions if function not in FUNCTIONS}
    return list(found)


def _plain(value: Any) -> Any:
    """The function itself, where arguments are bound to it."""
    while isinstance(value, (partial, MethodType)):
        value = value.func if isinstance(value, partial) else value.__func__
    return value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)

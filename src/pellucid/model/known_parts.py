"""The parts of a decoder that the files which compute it again in another form know, or refuse by themselves.

They refuse any other part, found by `unknown_parts`, and so never guess. Before you list a new one, teach it to each of
these files, or see that the file refuses it in its own words, as exports refuse linear attention:

    generation/single_token.py, slots.py   writing; a part that they do not know runs as it is, only slower
    inspection/inside.py                   all steps of a layer; of another attention: values, weights, heads and output
    web/static/model.js                    the page without a server; web/export.py refuses
    exchange/classes.py, gguf.py           files for other programs; exchange/architectures.py refuses
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch.nn.functional as F
from torch import nn

from pellucid.model.attention import MultiHeadAttention, explicit_attention, fused_attention
from pellucid.model.block import Block
from pellucid.model.decoder import Decoder
from pellucid.model.embeddings import SeparateEmbeddings, SoftCap, TiedEmbeddings
from pellucid.model.experts import Experts, Router
from pellucid.model.feed_forward import FeedForward, SwiGLU, relu_squared
from pellucid.model.linear_attention import LinearAttention
from pellucid.model.norms import LayerNorm, RMSNorm
from pellucid.model.positions import Learned, NoPositions, Rotary, Sinusoidal
from pellucid.model.residual import PostNorm, PreNorm
from pellucid.model.scoring_decoder import ScoringDecoder
from pellucid.model.sliding_window import SlidingWindowAttention, attend_in_window

CLASSES = {
    *(Decoder, ScoringDecoder, nn.ModuleList, Block, PreNorm, PostNorm, nn.Linear, nn.Identity, LayerNorm, RMSNorm),
    *(TiedEmbeddings, SeparateEmbeddings, SoftCap, NoPositions, Learned, Sinusoidal, Rotary),
    *(MultiHeadAttention, LinearAttention, SlidingWindowAttention, FeedForward, SwiGLU, Experts, Router),
}
FUNCTIONS: set[Callable[..., Any]] = {
    *(
        explicit_attention,
        fused_attention,
        attend_in_window,
        relu_squared,
        F.relu,
        F.gelu,
        NoPositions.rotate,
        Rotary.rotate,
    ),
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

"""The decoder at work on one token per sequence: what writes text.

It computes what `decoder.Decoder` computes, which is the text to read first. But one token is so little work that
a small model spends its time on the calls, not on the sums: a kernel takes microseconds to start, a module one more.
So this is done once, not per token: the matrices of queries, keys and values become one, all are laid out for
x @ W, and cast to the format that products are computed in. Weights changed later are not seen. A layer that this
file does not know is called as it is.

Shapes: B sequences, D model, H query heads, G key/value heads, K head width, S key positions, F feed-forward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.kernels.hooks import has_hooks
from pellucid.kernels.products import gains_from_packing, packed_product
from pellucid.model.attention import MultiHeadAttention, explicit_attention, fused_attention
from pellucid.model.block import Block
from pellucid.model.decoder import Decoder
from pellucid.model.embeddings import SeparateEmbeddings, TiedEmbeddings
from pellucid.model.feed_forward import FeedForward, SwiGLU
from pellucid.model.kv_cache import KVCache, LayerCache
from pellucid.model.language_model import LanguageModel, State, product_dtype
from pellucid.model.linear_attention import LinearAttention
from pellucid.model.norms import LayerNorm
from pellucid.model.residual import PostNorm, PreNorm, Sublayer
from pellucid.model.sliding_window import SlidingWindowAttention, attend_in_window

Projection = Callable[[Tensor], Tensor]

_SWITCH = threading.Lock()  # of oneDNN
_WAS_ENABLED: list[bool] = []  # what each thread inside `without_onednn` has found, the first at the bottom

CAUSAL_ATTENTIONS = (explicit_attention, fused_attention)  # of one query: both the same


class SingleTokenDecoder:
    """`decoder(tokens_B1, cache)[:, -1]` for a decoder in eval mode, to rounding."""

    def __init__(self, decoder: Decoder, attention_of: type[SingleQueryAttention] | None = None) -> None:
        self._check_length = decoder.check_length
        self._embed, self._add_positions = decoder.embeddings.embed, decoder.positions.add_to_embeddings
        self._blocks = [on_one_token(block, attention_of or SingleQueryAttention) for block in decoder.blocks]
        self._final_norm, self._soft_cap = as_function(decoder.final_norm), as_function(decoder.soft_cap)
        self._unembed = as_projection(decoder.embeddings)
        self._dtype = product_dtype(next(decoder.parameters()))
        self._kernels = without_onednn if self._dtype == torch.float32 else nullcontext

    def __call__(self, tokens_B: Tensor, cache: State) -> Tensor:
        """Logits (B, V) for the token after this one, which is added to the cache."""
        assert isinstance(cache, KVCache)
        start = cache.length
        self._check_length(start + 1)
        with self._kernels():
            x_BD = self._add_positions(self._embed(tokens_B[:, None]), start)[:, 0].to(self._dtype)
            for block, layer_cache in zip(self._blocks, cache.layers, strict=True):
                x_BD = block(x_BD, layer_cache)
            return self._soft_cap(self._unembed(self._final_norm(x_BD)))


def reader_of_one_token(model: LanguageModel) -> Callable[[Tensor, State], Tensor]:
    """From the next token of each sequence to the logits (B, V) after it, for any kind of model."""
    if isinstance(model, Decoder):
        return SingleTokenDecoder(model)
    return lambda tokens_B, state: model(tokens_B[:, None], state)[:, -1]


class SingleQueryAttention:
    """MultiHeadAttention for the last position alone: it sees all keys that its cache has, so nothing is masked."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.project = side_by_side(attention.W_Q, attention.W_K, attention.W_V)
        self.W_O = side_by_side(attention.W_O)
        self.head_width = attention.head_width
        layers = (attention.W_Q, attention.W_K, attention.W_V)
        self.n_heads_each = [layer.out_features // attention.head_width for layer in layers]
        self.shares_heads = len(set(self.n_heads_each)) > 1
        self.query_norm, self.key_norm = as_function(attention.query_norm), as_function(attention.key_norm)
        self.rotate = attention.rotate
        is_linear = type(attention) is LinearAttention
        self.gather: Callable[..., Tensor] = attention.gather if is_linear else self.gather_by_softmax

    def __call__(self, x_BD: Tensor, cache: LayerCache) -> Tensor:
        heads_BH1K = self.project(x_BD).view(x_BD.size(0), -1, 1, self.head_width)
        q_BH1K, k_BG1K, v_BG1K = torch.split_with_sizes(heads_BH1K, self.n_heads_each, 1)
        heads_BH1K = self.gather(self.query_norm(q_BH1K), self.key_norm(k_BG1K), v_BG1K, cache)
        return self.W_O(heads_BH1K.view(x_BD.size(0), -1))

    def gather_by_softmax(self, q_BH1K: Tensor, k_BG1K: Tensor, v_BG1K: Tensor, cache: LayerCache) -> Tensor:
        position = cache.length
        k_BGSK, v_BGSK = cache.append(self.rotate(k_BG1K, position), v_BG1K)
        q_BH1K = self.rotate(q_BH1K, position)
        return F.scaled_dot_product_attention(q_BH1K, k_BGSK, v_BGSK, enable_gqa=self.shares_heads)


def on_one_token(module: Sublayer, attention_of: type[SingleQueryAttention] = SingleQueryAttention) -> Sublayer:
    """The lean form of a part of the decoder, for one token. A part of an unknown kind is called as it is.

    attention_of: makes the lean form of attention.
    """
    if isinstance(module, nn.Module) and is_plain(module):
        if type(module) is Block:
            attention = on_one_token(module.attention, attention_of)
            feed_forward = on_one_token(module.feed_forward)
            return lambda x_BD, cache: feed_forward(attention(x_BD, cache))
        if type(module) is PreNorm:
            norm, sublayer = as_function(module.norm), on_one_token(module.sublayer, attention_of)
            return lambda x_BD, *inputs: x_BD + sublayer(norm(x_BD), *inputs)
        if type(module) is PostNorm:
            norm, sublayer = as_function(module.norm), on_one_token(module.sublayer, attention_of)
            return lambda x_BD, *inputs: norm(x_BD + sublayer(x_BD, *inputs))
        if isinstance(module, MultiHeadAttention) and has_lean_form(module):
            return attention_of(module)
        if type(module) is FeedForward:
            widen, narrow, activation = side_by_side(module.W_1), side_by_side(module.W_2), module.activation
            return lambda x_BD: narrow(activation(widen(x_BD)))
        if type(module) is SwiGLU:
            widen, narrow = side_by_side(module.W_gate, module.W_1), side_by_side(module.W_2)
            return lambda x_BD: narrow(silu_gate(*widen(x_BD).chunk(2, dim=-1)))
    return lambda x_BD, *inputs: module(x_BD[:, None], *inputs)[:, 0]


def has_lean_form(attention: MultiHeadAttention) -> bool:
    if type(attention) is MultiHeadAttention:
        return attention.attend in CAUSAL_ATTENTIONS
    if type(attention) is SlidingWindowAttention:
        return isinstance(attention.attend, partial) and attention.attend.func is attend_in_window
    return type(attention) is LinearAttention


def is_plain(module: nn.Module) -> bool:
    """Whether its projections are plain linear layers, not wrapped, and neither it nor they have hooks."""
    projections = [layer for name, layer in module.named_children() if name.startswith("W_")]
    return all(type(layer) is nn.Linear for layer in projections) and not has_hooks(module, *projections)


def silu_gate(gate_BF: Tensor, hidden_BF: Tensor) -> Tensor:
    return F.silu(gate_BF) * hidden_BF


def as_function(module: Sublayer) -> Projection:
    """The function of a module, its parameters bound: to look them up takes as long as a norm itself."""
    match module:
        case LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=epsilon) if type(module) is LayerNorm:
            return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
        case nn.Module(forward=forward):
            return forward
        case _:
            return module


def as_projection(embeddings: nn.Module) -> Projection:
    """From the last vectors to logits."""
    if type(embeddings) in (TiedEmbeddings, SeparateEmbeddings):
        return projection(embeddings.unembedding_VD)  # type: ignore[arg-type]
    return embeddings.unembed  # type: ignore[return-value]


def side_by_side(*linears: nn.Linear) -> Projection:
    """Several linear layers of the same input as one: their outputs stand one after the other."""
    if len(linears) == 1:  # no need for a copy
        return projection(linears[0].weight, linears[0].bias)
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return projection(torch.cat([linear.weight for linear in linears]), bias)


def projection(weight_OI: Tensor, bias_O: Tensor | None = None) -> Projection:
    """x -> x W^T + b for rows x, with W laid out in memory as it is read."""
    dtype = product_dtype(weight_OI)
    weight_OI = weight_OI.detach().to(dtype)
    bias_O = None if bias_O is None else bias_O.detach().to(dtype)
    if gains_from_packing(weight_OI):
        return packed_product(weight_OI, bias_O)
    weight_IO = weight_OI.T.contiguous()
    if bias_O is None:
        return lambda x_BI: torch.mm(x_BI, weight_IO)
    return lambda x_BI: torch.addmm(bias_O, x_BI, weight_IO)


@contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN, to which PyTorch gives float32 GELU on a CPU, prepares each call for longer than a row of it takes.

    The switch is the whole process's, so with several threads inside, the last to leave puts it back.
    """
    with _SWITCH:
        _WAS_ENABLED.append(bool(torch.backends.mkldnn.enabled))
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        with _SWITCH:
            was_enabled = _WAS_ENABLED.pop()
            if not _WAS_ENABLED:
                torch.backends.mkldnn.enabled = was_enabled  # type: ignore[assignment]

"""The decoder at work on one token per sequence: what writes text.

It computes what `decoder.Decoder` computes, which is the text to read first. But one token is so little work that
a small model spends its time on the calls, not on the sums: a kernel takes microseconds to start, a module one more.
So this is done once, not per token: the matrices of queries, keys and values become one, all are laid out for
x @ W, and cast to the format that products are computed in. Weights changed later are not seen.

Shapes: B sequences, D model, H query heads, G key/value heads, K head width, S key positions, F feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import assert_never

from pellucid.model.attention import MultiHeadAttention
from pellucid.model.block import Block
from pellucid.model.decoder import Decoder, product_dtype
from pellucid.model.feed_forward import FeedForward, SwiGLU
from pellucid.model.kv_cache import KVCache, LayerCache
from pellucid.model.residual import PostNorm, PreNorm, Residual, Sublayer

Projection = Callable[[Tensor], Tensor]


class SingleTokenDecoder:
    """`decoder(tokens_B1, cache)[:, -1]` for a decoder in eval mode, to rounding."""

    def __init__(self, decoder: Decoder) -> None:
        self._check_length = decoder.check_length
        self._embed, self._add_positions = decoder.embeddings.embed, decoder.positions.add_to_embeddings
        self._blocks: list[tuple[Sublayer, Sublayer]] = []
        for block in decoder.blocks:
            assert isinstance(block, Block)
            self._blocks.append((residual_function(block.attention), residual_function(block.feed_forward)))
        self._final_norm, self._soft_cap = as_function(decoder.final_norm), as_function(decoder.soft_cap)
        self._unembed = projection(decoder.embeddings.unembedding_VD)
        self._dtype = product_dtype(decoder.embeddings.unembedding_VD)
        self._kernels = without_onednn if self._dtype == torch.float32 else nullcontext

    def __call__(self, tokens_B: Tensor, cache: KVCache) -> Tensor:
        """Logits (B, V) for the token after this one, which is added to the cache."""
        start = cache.length
        self._check_length(start + 1)
        with self._kernels():
            x_BD = self._add_positions(self._embed(tokens_B[:, None]), start)[:, 0].to(self._dtype)
            for (attention, feed_forward), layer_cache in zip(self._blocks, cache.layers, strict=True):
                x_BD = feed_forward(attention(x_BD, layer_cache))
            return self._soft_cap(self._unembed(self._final_norm(x_BD)))


class SingleQueryAttention:
    """MultiHeadAttention for the last position alone: it sees all keys, so there is nothing to mask."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.project = side_by_side(attention.W_Q, attention.W_K, attention.W_V)
        self.W_O = side_by_side(attention.W_O)
        self.head_width = attention.head_width
        self.n_heads_each = attention.n_heads_each
        self.shares_heads = len(set(self.n_heads_each)) > 1
        self.query_norm, self.key_norm = as_function(attention.query_norm), as_function(attention.key_norm)
        self.rotate = attention.rotate

    def __call__(self, x_BD: Tensor, cache: LayerCache) -> Tensor:
        B, position = x_BD.size(0), cache.length
        heads_BH1K = self.project(x_BD).view(B, -1, 1, self.head_width)
        q_BH1K, k_BG1K, v_BG1K = torch.split_with_sizes(heads_BH1K, self.n_heads_each, 1)
        q_BH1K = self.rotate(self.query_norm(q_BH1K), position)
        k_BGSK, v_BGSK = cache.append(self.rotate(self.key_norm(k_BG1K), position), v_BG1K)
        heads_BH1K = F.scaled_dot_product_attention(q_BH1K, k_BGSK, v_BGSK, enable_gqa=self.shares_heads)
        return self.W_O(heads_BH1K.view(B, -1))


def residual_function(residual: Residual) -> Sublayer:
    """The residual connection (equation 10) around the sublayer, on one token."""
    norm, sublayer = as_function(residual.norm), sublayer_function(residual.sublayer)
    match residual:
        case PreNorm():
            return lambda x_BD, *inputs: x_BD + sublayer(norm(x_BD), *inputs)
        case PostNorm():
            return lambda x_BD, *inputs: norm(x_BD + sublayer(x_BD, *inputs))
        case _:
            assert_never(residual)


def sublayer_function(sublayer: Sublayer) -> Sublayer:
    """Attention or feed-forward, on one token."""
    match sublayer:
        case MultiHeadAttention():
            return SingleQueryAttention(sublayer)
        case FeedForward(activation=activation):
            widen, narrow = side_by_side(sublayer.W_1), side_by_side(sublayer.W_2)
            return lambda x_BD: narrow(activation(widen(x_BD)))
        case SwiGLU():
            widen, narrow = side_by_side(sublayer.W_gate, sublayer.W_1), side_by_side(sublayer.W_2)

            def gated(x_BD: Tensor) -> Tensor:
                gate_BF, hidden_BF = widen(x_BD).chunk(2, dim=-1)
                return narrow(F.silu(gate_BF) * hidden_BF)

            return gated
        case _:
            raise AssertionError(f"no single-token form of {type(sublayer).__name__}")


def as_function(module: Sublayer) -> Projection:
    """What the module computes, without the search for its parameters, which takes as long as a norm itself."""
    match module:
        case nn.LayerNorm(normalized_shape=shape, weight=weight, bias=bias, eps=epsilon):
            return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
        case nn.Module(forward=forward):
            return forward
        case _:
            return module


def side_by_side(*linears: nn.Linear) -> Projection:
    """Several linear layers of the same input as one: their outputs stand one after the other."""
    bias = None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
    return projection(torch.cat([linear.weight for linear in linears]), bias)


def projection(weight_OI: Tensor, bias_O: Tensor | None = None) -> Projection:
    """x -> x W^T + b for rows x, with W^T laid out in memory as it is read."""
    dtype = product_dtype(weight_OI)
    weight_IO = weight_OI.detach().to(dtype).T.contiguous()
    if bias_O is not None:
        bias_O = bias_O.detach().to(dtype)
        return lambda x_BI: torch.addmm(bias_O, x_BI, weight_IO)
    return lambda x_BI: torch.mm(x_BI, weight_IO)


@contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN, to which PyTorch gives float32 GELU on a CPU, prepares each call for longer than a row of it takes."""
    was_enabled = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = was_enabled

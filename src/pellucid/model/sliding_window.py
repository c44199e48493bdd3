"""Sliding-window attention: each position sees the last `window` tokens, itself included (equation 39).

So the work per token and the cache stop growing once the window is full. Information from further back can still pass
from layer to layer: n layers reach n (window - 1) positions back (Beltagy et al. 2020; Mistral 7B, Jiang et al. 2023).

Shapes: B batch, T query positions, S key positions, H heads, G key/value heads, K head width.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from pellucid.model.attention import MultiHeadAttention, causal_mask, scaled_dot_product
from pellucid.model.capped_attention import CappedAttention
from pellucid.model.kv_cache import LayerCache


def window_mask(n_queries: int, n_keys: int, window: int, like: Tensor) -> Tensor:
    """0 where the key is one of the last `window` at or before the query, -infinity elsewhere (equation 39)."""
    too_old_TS = like.new_full((n_queries, n_keys), float("-inf")).tril(diagonal=n_keys - n_queries - window)
    return causal_mask(n_queries, n_keys, like) + too_old_TS


def attend_in_window(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, mask_TS: Tensor | None = None, *, window: int
) -> Tensor:
    """Softmax attention under the mask of the window and any other, every score and weight computed explicitly."""
    in_window_TS = window_mask(q_BHTK.size(2), k_BHSK.size(2), window, like=q_BHTK)
    mask_TS = in_window_TS if mask_TS is None else in_window_TS + mask_TS
    return scaled_dot_product(q_BHTK, k_BHSK, v_BHSK, mask_TS, dropout)


class SlidingWindowAttention(MultiHeadAttention):
    """Multi-head attention to the last `window` positions."""

    def __init__(self, *, window: int, **others: Any) -> None:
        super().__init__(attend=partial(attend_in_window, window=window), **others)
        self.window = window

    def new_cache(self, batch_size: int, capacity: int, like: Tensor) -> WindowCache:
        """An empty cache for the last `window` - 1 positions, or `capacity` if that is less."""
        shape_BGSK = (batch_size, self.n_kv_heads, min(self.window - 1, capacity), self.head_width)
        return WindowCache(like.new_zeros(shape_BGSK), like.new_zeros(shape_BGSK), self.window)

    equations = (7, 39)

    def mask(self, n_queries: int, n_keys: int, like: Tensor) -> Tensor:
        return window_mask(n_queries, n_keys, self.window, like)


class CappedWindowAttention(CappedAttention, SlidingWindowAttention):
    """Multi-head attention to the last `window` positions, with capped scores (Gemma 2)."""


class WindowCache(LayerCache):
    """Keys and values of the last `window` - 1 positions: all that a new token sees besides itself."""

    def __init__(self, keys_BGSK: Tensor, values_BGSK: Tensor, window: int) -> None:
        super().__init__(keys_BGSK, values_BGSK)
        self.window = window

    def append(self, keys_BGSK: Tensor, values_BGSK: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stored keys and values followed by the new ones; store only the latest."""
        n_held = min(self.length, self.window - 1)
        keys_BGSK = torch.cat([self.keys_BGSK.narrow(2, 0, n_held), keys_BGSK.detach()], dim=2)
        values_BGSK = torch.cat([self.values_BGSK.narrow(2, 0, n_held), values_BGSK.detach()], dim=2)
        self.length += keys_BGSK.size(2) - n_held
        n_kept = min(self.length, self.window - 1)
        start = keys_BGSK.size(2) - n_kept
        self.keys_BGSK.narrow(2, 0, n_kept).copy_(keys_BGSK.narrow(2, start, n_kept))
        self.values_BGSK.narrow(2, 0, n_kept).copy_(values_BGSK.narrow(2, start, n_kept))
        return keys_BGSK, values_BGSK


def limited_attention(window: int | None, cap: float | None, **parts: Any) -> MultiHeadAttention:
    """Attention in a window, with capped scores, with both or, if both are None, with neither."""
    if cap is None:
        return MultiHeadAttention(**parts) if window is None else SlidingWindowAttention(window=window, **parts)
    if window is None:
        return CappedAttention(cap=cap, **parts)
    return CappedWindowAttention(cap=cap, window=window, **parts)

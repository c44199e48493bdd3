"""Attention: each position gathers what it needs from itself and the positions before it.

Read `scaled_dot_product` (equation 7) with `causal_mask` (equation 8), then MultiHeadAttention (equation 9).
`fused_attention` computes the same in one PyTorch kernel, which never keeps the T x S weights in memory.

Shapes: B batch, T query positions, S key positions, D model, H heads, G key/value heads, K head width.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.kv_cache import LayerCache, NoCache

Rotate = Callable[[Tensor, int], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]

LONGEST_EXPLICIT_ON_CPU = 512  # keys; see faster_attention


def scaled_dot_product(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask_TS: Tensor, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(K) + mask) v: equation 7, with positions as rows instead of columns.

    A query's product with each key says how much it wants that key's value; softmax turns those scores
    into weights that sum to one. The root keeps the scores' variance at one when q and k have it.
    """
    scores_BHTS = (q_BHTK / sqrt(q_BHTK.size(-1))) @ k_BHSK.mT + mask_TS
    weights_BHTS = F.dropout(scores_BHTS.softmax(dim=-1), dropout)
    return weights_BHTS @ v_BHSK


def causal_mask(n_queries: int, n_keys: int, like: Tensor) -> Tensor:
    """0 where the key is at or before the query, -infinity after it: no look into the future (equation 8).

    The queries are the last of the positions: with a cache there are keys before the first query.
    """
    mask_TS = like.new_full((n_queries, n_keys), float("-inf"))
    return mask_TS.triu(diagonal=1 + n_keys - n_queries)


def explicit_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float) -> Tensor:
    """Causal attention, step by step as the equations say it."""
    mask_TS = causal_mask(q_BHTK.size(2), k_BHSK.size(2), like=q_BHTK)
    return scaled_dot_product(q_BHTK, k_BHSK, v_BHSK, mask_TS, dropout)


def fused_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float) -> Tensor:
    """The same in one kernel, such as FlashAttention (Dao et al. 2022): memory linear in the length."""
    n_queries, n_keys = q_BHTK.size(2), k_BHSK.size(2)
    if n_queries == n_keys:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, dropout_p=dropout, is_causal=True)
    # With a cache, PyTorch's is_causal would count the queries from the first key; ours are the last.
    # A single query is after every key, and needs no mask.
    mask_TS = causal_mask(n_queries, n_keys, like=q_BHTK) if n_queries > 1 else None
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_TS, dropout_p=dropout)


def faster_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float) -> Tensor:
    """The faster of the two, as measured: fused, except to train in bfloat16 on a CPU at short lengths.

    There the fused kernel's backward pass is slow. Forward and backward take it 3.7 times as long at 64
    and 128 tokens, 1.8 times at 256, 1.5 at 512, and 0.8 at 1024 (Xeon with AMX, PyTorch 2.13).
    """
    bfloat16_on_cpu = q_BHTK.device.type == "cpu" and q_BHTK.dtype == torch.bfloat16
    if bfloat16_on_cpu and q_BHTK.requires_grad and k_BHSK.size(2) <= LONGEST_EXPLICIT_ON_CPU:
        return explicit_attention(q_BHTK, k_BHSK, v_BHSK, dropout)
    return fused_attention(q_BHTK, k_BHSK, v_BHSK, dropout)


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own K-wide projection of x (equation 9).

    With fewer key/value heads than query heads, each is shared by a group of query heads (Ainslie et al.
    2023), which makes the cache smaller. `rotate` belongs to the positions; `attend` is a function above.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        rotate: Rotate,
        attend: Attend,
        query_norm: nn.Module,
        key_norm: nn.Module,
        bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.head_width = d_model // n_heads
        self.n_heads = n_heads
        self.n_heads_each = [n_heads, n_kv_heads, n_kv_heads]  # of queries, keys and values
        self.W_Q = nn.Linear(d_model, n_heads * self.head_width, bias=bias)
        self.W_K = nn.Linear(d_model, n_kv_heads * self.head_width, bias=bias)
        self.W_V = nn.Linear(d_model, n_kv_heads * self.head_width, bias=bias)
        self.W_O = nn.Linear(n_heads * self.head_width, d_model, bias=bias)
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.rotate = rotate
        self.attend = attend
        self.dropout = dropout

    def forward(self, x_BTD: Tensor, cache: LayerCache | NoCache) -> Tensor:
        start = cache.length
        q_BHTK, k_BGTK, v_BGTK = self.project(x_BTD)
        q_BHTK = self.rotate(self.query_norm(q_BHTK), start)
        k_BGTK = self.rotate(self.key_norm(k_BGTK), start)

        k_BGSK, v_BGSK = cache.append(k_BGTK, v_BGTK)
        k_BHSK, v_BHSK = self.share_among_heads(k_BGSK), self.share_among_heads(v_BGSK)

        dropout = self.dropout if self.training else 0.0
        heads_BHTK = self.attend(q_BHTK, k_BHSK, v_BHSK, dropout)
        concatenated_BTD = heads_BHTK.transpose(1, 2).flatten(start_dim=2)
        return F.dropout(self.W_O(concatenated_BTD), dropout)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """W_Q x, W_K x and W_V x, each cut into heads; as one product, which is faster than three."""
        layers = (self.W_Q, self.W_K, self.W_V)
        weight = torch.cat([layer.weight for layer in layers])
        bias = None if self.W_Q.bias is None else torch.cat([layer.bias for layer in layers])
        heads_BTHK = F.linear(x_BTD, weight, bias).view(*x_BTD.shape[:2], -1, self.head_width)
        q_BHTK, k_BGTK, v_BGTK = torch.split(heads_BTHK.transpose(1, 2), self.n_heads_each, dim=1)
        # Copied, so that each head is one block of memory: what follows is faster by more than the copy takes.
        return q_BHTK.contiguous(), k_BGTK.contiguous(), v_BGTK.contiguous()

    def share_among_heads(self, x_BGSK: Tensor) -> Tensor:
        """Give key/value head g to the query heads g*H/G ... (g+1)*H/G - 1; no copy when G = H."""
        B, G, S, K = x_BGSK.shape
        return x_BGSK.unsqueeze(2).expand(B, G, self.n_heads // G, S, K).reshape(B, self.n_heads, S, K)

"""Attention: each position gathers what it needs from itself and the positions before it.

Read `scaled_dot_product` (equation 7) with `causal_mask` (equation 8), then MultiHeadAttention (equation 9).

Shapes: B batch, T query positions, S key positions, D model, H heads, G key/value heads, K head width.
"""

from collections.abc import Callable
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.kv_cache import AttendOnOneToken, LayerCache, NoCache, attend_on_one_token
from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, as_function, has_hooks, side_by_side
from pellucid.model.positions import nowhere

Rotate = Callable[[Tensor, int], Tensor]
Attend = Callable[[Tensor, Tensor, Tensor, float, Tensor | None], Tensor]


def scaled_dot_product(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask_TS: Tensor, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(K) + mask) v: equation 7, with positions as rows instead of columns.

    A query's product with each key says how much it wants that key's value; softmax turns those scores
    into weights that sum to one. The root keeps the scores' variance at one when q and k have it.
    """
    scores_BHTS = (q_BHTK / sqrt(q_BHTK.size(-1))) @ k_BHSK.mT
    scores_BHTS += mask_TS
    weights_BHTS = F.dropout(scores_BHTS.softmax(dim=-1), dropout)
    return weights_BHTS @ v_BHSK


def causal_mask(n_queries: int, n_keys: int, like: Tensor) -> Tensor:
    """0 where the key is at or before the query, -infinity after it: no look into the future (equation 8).

    The queries are the last of the positions: with a cache there are keys before the first query.
    """
    mask_TS = like.new_full((n_queries, n_keys), float("-inf"))
    return mask_TS.triu(diagonal=1 + n_keys - n_queries)


def explicit_attention(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, mask_TS: Tensor | None = None
) -> Tensor:
    """Attention by equation 7, every score and weight computed explicitly.

    The mask is that of equation 8, unless another is given: (B, 1, T, S) where rows hold several documents.
    """
    mask_TS = causal_mask(q_BHTK.size(2), k_BHSK.size(2), like=q_BHTK) if mask_TS is None else mask_TS
    return scaled_dot_product(q_BHTK, k_BHSK, v_BHSK, mask_TS, dropout)


def project(
    x_BTD: Tensor, W_Q: nn.Module, W_K: nn.Module, W_V: nn.Module, head_width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """W_Q x, W_K x and W_V x, each cut into heads."""
    heads = (W(x_BTD).unflatten(-1, (-1, head_width)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    # Each head as one block of memory: later products gain more than the copy costs.
    q_BHTK, k_BGTK, v_BGTK = (head.contiguous() for head in heads)
    return q_BHTK, k_BGTK, v_BGTK


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own K-wide projection of x (equation 9).

    With fewer key/value heads than query heads, each is shared by a group of query heads, which makes the cache smaller
    (equation 23; Ainslie et al. 2023). `query_norm` and `key_norm` may be the identity (equation 24). `rotate` is a
    method of the positions, `attend` the function above or `fused_attention`.
    """

    def __init__(
        self,
        *,
        d_model: int,
        head_width: int,
        n_heads: int,
        n_kv_heads: int,
        rotate: Rotate,
        attend: Attend = explicit_attention,
        query_norm: nn.Module,
        key_norm: nn.Module,
        bias: bool,
        output_bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.head_width, self.n_heads, self.n_kv_heads = head_width, n_heads, n_kv_heads
        self.W_Q = nn.Linear(d_model, n_heads * head_width, bias=bias)
        self.W_K = nn.Linear(d_model, n_kv_heads * head_width, bias=bias)
        self.W_V = nn.Linear(d_model, n_kv_heads * head_width, bias=bias)
        self.W_O = nn.Linear(n_heads * head_width, d_model, bias=output_bias)
        self.query_norm, self.key_norm = query_norm, key_norm
        self.rotate, self.attend, self.dropout = rotate, attend, dropout

    def forward(self, x_BTD: Tensor, cache: LayerCache | NoCache) -> Tensor:
        q_BHTK, k_BGTK, v_BGTK = project(x_BTD, self.W_Q, self.W_K, self.W_V, self.head_width)
        heads_BHTK = self.gather(self.query_norm(q_BHTK), self.key_norm(k_BGTK), v_BGTK, cache)
        concatenated_BTD = heads_BHTK.transpose(1, 2).flatten(start_dim=2)
        return F.dropout(self.W_O(concatenated_BTD), self.dropout, self.training)

    def gather(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: LayerCache | NoCache) -> Tensor:
        """Each query's weighted mean of the values at its position and before it."""
        start = cache.length  # 0 in training
        k_BGSK, v_BGSK = cache.append(self.rotate(k_BGTK, start), v_BGTK)
        k_BHSK, v_BHSK = self.share_among_heads(k_BGSK), self.share_among_heads(v_BGSK)
        dropout = self.dropout if self.training else 0.0
        return self.attend(self.rotate(q_BHTK, start), k_BHSK, v_BHSK, dropout, cache.mask)

    def on_one_token(self) -> OnOneToken:
        return AttentionOnOneToken(self)

    def new_cache(self, batch_size: int, capacity: int, like: Tensor) -> LayerCache:
        """An empty cache for `capacity` positions, in the dtype and on the device of `like`."""
        shape_BGSK = (batch_size, self.n_kv_heads, capacity, self.head_width)
        return LayerCache(like.new_zeros(shape_BGSK), like.new_zeros(shape_BGSK))

    def share_among_heads(self, x_BGSK: Tensor) -> Tensor:
        """Repeat each key/value head for the H/G query heads that share it: (B, H, S, K); no copy when G = H."""
        B, G, S, K = x_BGSK.shape
        return x_BGSK.unsqueeze(2).expand(B, G, self.n_heads // G, S, K).reshape(B, self.n_heads, S, K)

    equations = (7, 8)  # of the weights, and of the mask

    def steps(self, x_TD: Tensor) -> list[Step]:
        """`forward` for one text, with all scores and weights, which `attend` need not keep."""
        q_BHTK, k_BGSK, v_BGSK = project(x_TD[None], self.W_Q, self.W_K, self.W_V, self.head_width)
        q_BHTK, k_BGSK = self.query_norm(q_BHTK), self.key_norm(k_BGSK)
        q_BHTK, k_BGSK, scores_BHTS, weights_BHTS = self.compare(q_BHTK, k_BGSK)
        heads_BHTK = weights_BHTS @ self.share_among_heads(v_BGSK)
        output_BTD = self.W_O(heads_BHTK.transpose(1, 2).flatten(start_dim=2))

        weighted, masked = self.equations
        shared = () if self.n_kv_heads == self.n_heads else (23,)
        normed = () if isinstance(self.query_norm, nn.Identity) else (24,)
        mapped = () if weighted == 7 else (weighted,)
        changed = (*normed, *mapped, *getattr(getattr(self.rotate, "__self__", None), "equations", ()))
        return [
            Step("q", "HTK", (7, *changed), q_BHTK[0]),
            Step("k", "GSK", (7, *shared, *changed), k_BGSK[0]),
            Step("v", "GSK", (7, *shared), v_BGSK[0]),
            Step("scores", "HTS", (weighted, masked), scores_BHTS[0]),
            Step("weights", "HTS", (weighted,), weights_BHTS[0]),
            Step("heads", "HTK", (weighted,), heads_BHTK[0]),
            Step("output", "TD", (9,), output_BTD[0]),
        ]

    def compare(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys as they meet, their scores, and the weights of the values."""
        q_BHTK, k_BGSK = self.rotate(q_BHTK, 0), self.rotate(k_BGSK, 0)
        products_BHTS = (q_BHTK / sqrt(self.head_width)) @ self.share_among_heads(k_BGSK).mT
        scores_BHTS = products_BHTS + self.mask(q_BHTK.size(2), k_BGSK.size(2), like=q_BHTK)
        return q_BHTK, k_BGSK, scores_BHTS, scores_BHTS.softmax(dim=-1)

    def mask(self, n_queries: int, n_keys: int, like: Tensor) -> Tensor:
        return causal_mask(n_queries, n_keys, like)


class AttentionOnOneToken:
    """Multi-head attention of the last position alone; its cache knows whom it sees.

    Shapes: M heads: of the queries, the keys and the values, one after the other.
    """

    def __init__(self, attention: MultiHeadAttention, attend: AttendOnOneToken = attend_on_one_token) -> None:
        layers = (attention.W_Q, attention.W_K, attention.W_V)
        self.project, self.W_O = side_by_side(*layers), side_by_side(attention.W_O)
        self.attend, self.head_width, n_kv_heads = attend, attention.head_width, attention.n_kv_heads
        self.n_heads_each = [attention.n_heads, n_kv_heads, n_kv_heads]
        norms = (attention.query_norm, attention.key_norm)
        self.has_norms = any(type(norm) is not nn.Identity or has_hooks(norm) for norm in norms)
        self.query_norm, self.key_norm = map(as_function, norms)
        positions = getattr(attention.rotate, "__self__", None)  # whose method `rotate` is
        self.rotate = nowhere if positions is None else positions.on_one_token()[1]

    def __call__(self, x_BD: Tensor, cache: LayerCache) -> Tensor:
        heads_BM1K = self.project(x_BD).view(x_BD.size(0), -1, 1, self.head_width)
        if self.has_norms:
            q_BH1K, k_BG1K, v_BG1K = torch.split_with_sizes(heads_BM1K, self.n_heads_each, 1)
            heads_BM1K = torch.cat([self.query_norm(q_BH1K), self.key_norm(k_BG1K), v_BG1K], dim=1)
        heads_BH1K = self.gather(heads_BM1K, cache)
        return self.W_O(heads_BH1K.flatten(start_dim=1))  # a copy where a kernel has left gaps between the heads

    def gather(self, heads_BM1K: Tensor, cache: LayerCache) -> Tensor:
        return cache.attend(heads_BM1K, self.n_heads_each, self.rotate, self.attend)

"""Attention whose scores stay within +-cap, so that no weight is nearly 1 only because vectors are long (equation 57).

Shapes: B batch, T query positions, S key positions, H heads, G key/value heads, R query heads for each, K head width.
"""

from functools import partial
from math import sqrt
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from pellucid.model.attention import AttentionOnOneToken, MultiHeadAttention
from pellucid.model.kv_cache import LayerCache, NoCache
from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken


def capped_scores(q_BHTK: Tensor, k_BHSK: Tensor, cap: float) -> Tensor:
    """cap tanh(q k^T / (cap sqrt(K))): large scores come close to the cap, small ones hardly change."""
    scores_BHTS = (q_BHTK / sqrt(q_BHTK.size(-1))) @ k_BHSK.mT
    return cap * (scores_BHTS / cap).tanh()


class CappedAttention(MultiHeadAttention):
    """Multi-head attention with capped scores (Gemma 2, 2024). They are capped before they are masked."""

    def __init__(self, *, cap: float, **others: Any) -> None:
        super().__init__(**others)
        self.cap = cap

    def gather(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: LayerCache | NoCache) -> Tensor:
        start = cache.length
        k_BGSK, v_BGSK = cache.append(self.rotate(k_BGTK, start), v_BGTK)
        scores_BHTS = self.scores(self.rotate(q_BHTK, start), k_BGSK)
        if cache.mask is not None:  # of documents side by side
            scores_BHTS = scores_BHTS + cache.mask
        weights_BHTS = F.dropout(scores_BHTS.softmax(dim=-1), self.dropout, self.training)
        return weights_BHTS @ self.share_among_heads(v_BGSK)

    def scores(self, q_BHTK: Tensor, k_BGSK: Tensor) -> Tensor:
        """The capped scores of keys that a query may see, -infinity of all others."""
        capped_BHTS = capped_scores(q_BHTK, self.share_among_heads(k_BGSK), self.cap)
        return capped_BHTS + self.mask(q_BHTK.size(2), k_BGSK.size(2), like=q_BHTK)

    def on_one_token(self) -> OnOneToken:
        return AttentionOnOneToken(self, partial(attend_with_cap, cap=self.cap))

    def compare(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q_BHTK, k_BGSK = self.rotate(q_BHTK, 0), self.rotate(k_BGSK, 0)
        scores_BHTS = self.scores(q_BHTK, k_BGSK)
        return q_BHTK, k_BGSK, scores_BHTS, scores_BHTS.softmax(dim=-1)

    def steps(self, x_TD: Tensor) -> list[Step]:
        steps = super().steps(x_TD)
        return [step._replace(equations=(57, *step.equations)) if step.name == "scores" else step for step in steps]


def attend_with_cap(
    q_BH1K: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, is_seen_B11S: Tensor | None = None, *, cap: float
) -> Tensor:
    """`attend_on_one_token` with capped scores, written out: PyTorch's own has no cap."""
    B, G, _, K = k_BGSK.shape
    capped_BGRS = capped_scores(q_BH1K.reshape(B, G, -1, K), k_BGSK, cap)
    if is_seen_B11S is not None:
        capped_BGRS = capped_BGRS.masked_fill(~is_seen_B11S, float("-inf"))
    return (capped_BGRS.softmax(dim=-1) @ v_BGSK).reshape(q_BH1K.shape)

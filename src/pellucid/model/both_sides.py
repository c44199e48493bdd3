"""Attention to both sides: each position sees its whole row, as in an encoder such as BERT (Devlin et al. 2019).

Shapes: B batch, T query positions, S key positions, H heads, K head width.
"""

from functools import partial
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.model.attention import Attend, MultiHeadAttention, explicit_attention
from pellucid.model.fused_attention import fused_attention


def attend_to_both_sides(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, mask: Tensor | None = None, *, attend: Attend
) -> Tensor:
    """Attention without the causal mask (equation 62).

    mask: where rows hold several documents, that of equation 48. Whom a position may see, or by whom it may be seen, is
    in its document: so the mask of both sides is the larger of it and its transpose.
    """
    if mask is None and attend is fused_attention:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, dropout_p=dropout)  # a mask would slow it down
    mask = q_BHTK.new_zeros(1, 1) if mask is None else torch.maximum(mask, mask.mT)
    return attend(q_BHTK, k_BHSK, v_BHSK, dropout, mask)


class BothSides(MultiHeadAttention):
    """Multi-head attention to all positions of a row. It cannot write: a new token would change all before it."""

    def __init__(self, *, is_fused: bool = False, **others: Any) -> None:
        attend = fused_attention if is_fused else explicit_attention
        super().__init__(attend=partial(attend_to_both_sides, attend=attend), **others)

    equations = (7, 62)
    sees_later_tokens = True  # padding, too

    def mask(self, n_queries: int, n_keys: int, like: Tensor) -> Tensor:
        return like.new_zeros(n_queries, n_keys)

    def new_cache(self, batch_size: int, capacity: int, like: Tensor) -> NoReturn:
        """Raises ConfigError: there is nothing to keep, as each new token changes what all others are."""
        what = "a model that sees both sides cannot write: it has learned to fill gaps, not to go on"
        raise ConfigError("model.attention_mask", what, "take a run with attention_mask causal")

    def on_one_token(self) -> NoReturn:
        self.new_cache(1, 1, self.W_O.weight)

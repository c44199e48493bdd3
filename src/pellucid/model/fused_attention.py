"""Causal attention by one kernel: where a config says `model.attention: fused`.

Shapes: B batch, T query positions, S key positions, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def fused_attention(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, mask_TS: Tensor | None = None
) -> Tensor:
    """`explicit_attention` by one kernel, such as FlashAttention (Dao et al. 2022).

    Without a mask its memory is linear in the length.
    """
    n_queries, n_keys = q_BHTK.size(2), k_BHSK.size(2)
    if mask_TS is None and n_queries == n_keys:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, dropout_p=dropout, is_causal=True)
    # With a cache, PyTorch's is_causal would count the queries from the first key; ours are the last.
    # A single query is after every key, and needs no mask.
    if mask_TS is None and n_queries > 1:
        mask_TS = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q_BHTK.device).tril(n_keys - n_queries)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_TS, dropout_p=dropout)

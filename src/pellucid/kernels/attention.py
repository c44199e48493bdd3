"""Attention's fast forms: one product for queries, keys and values, PyTorch's fused attention, and when to use it.

Shapes: B batch, T query positions, S key positions, D model, H heads, G key/value heads, K head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.kernels.hooks import has_hooks

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]

LONGEST_EXPLICIT_ON_CPU = 512  # keys; see faster_attention


def project_together(
    x_BTD: Tensor, W_Q: nn.Module, W_K: nn.Module, W_V: nn.Module, head_width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`model.attention.project` as one product instead of three, if all three are plain linear layers."""
    layers = [layer for layer in (W_Q, W_K, W_V) if type(layer) is nn.Linear and not has_hooks(layer)]
    if len(layers) < 3:
        q_BHTK, k_BGTK, v_BGTK = (W(x_BTD).unflatten(-1, (-1, head_width)).transpose(1, 2) for W in (W_Q, W_K, W_V))
        return q_BHTK, k_BGTK, v_BGTK
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    heads_BTHK = F.linear(x_BTD, weight, bias).view(*x_BTD.shape[:2], -1, head_width)
    n_heads_each = [layer.out_features // head_width for layer in layers]
    q_BHTK, k_BGTK, v_BGTK = torch.split(heads_BTHK.transpose(1, 2), n_heads_each, dim=1)
    # Copied, so that each head is one block of memory: later products gain more than the copy costs.
    return q_BHTK.contiguous(), k_BGTK.contiguous(), v_BGTK.contiguous()


def fused_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float) -> Tensor:
    """Causal attention in one kernel, such as FlashAttention (Dao et al. 2022): memory linear in the length."""
    n_queries, n_keys = q_BHTK.size(2), k_BHSK.size(2)
    if n_queries == n_keys:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, dropout_p=dropout, is_causal=True)
    # With a cache, PyTorch's is_causal would count the queries from the first key; ours are the last.
    # A single query is after every key, and needs no mask.
    allowed_TS = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q_BHTK.device).tril(n_keys - n_queries)
    mask_TS = allowed_TS if n_queries > 1 else None
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_TS, dropout_p=dropout)


def faster_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, *, explicit: Attend) -> Tensor:
    """The faster of fused and explicit attention, as measured: explicit only to train short texts in bfloat16 on a CPU.

    There the fused kernel's backward pass is slow: forward and backward together take 3.7 times as long at 64
    and 128 tokens, 1.8 times at 256, 1.5 at 512, and 0.8 at 1024 (Xeon with AMX, PyTorch 2.13).
    """
    if fused_is_slow(q_BHTK, k_BHSK):
        return explicit(q_BHTK, k_BHSK, v_BHSK, dropout)
    return fused_attention(q_BHTK, k_BHSK, v_BHSK, dropout)


def faster_window(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, dropout: float, *, window: int, explicit: Attend
) -> Tensor:
    """`faster_attention` for `model.sliding_window`. The fused kernel also computes the scores that its mask hides."""
    if fused_is_slow(q_BHTK, k_BHSK):
        return explicit(q_BHTK, k_BHSK, v_BHSK, dropout)
    n_queries, n_keys = q_BHTK.size(2), k_BHSK.size(2)
    not_later_TS = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q_BHTK.device).tril(n_keys - n_queries)
    mask_TS = not_later_TS.triu(n_keys - n_queries - window + 1)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_TS, dropout_p=dropout)


def fused_is_slow(q_BHTK: Tensor, k_BHSK: Tensor) -> bool:
    bfloat16_on_cpu = q_BHTK.device.type == "cpu" and q_BHTK.dtype == torch.bfloat16
    return bfloat16_on_cpu and q_BHTK.requires_grad and k_BHSK.size(2) <= LONGEST_EXPLICIT_ON_CPU

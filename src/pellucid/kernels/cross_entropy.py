"""The loss of short logits without a float32 copy of them.

Shapes: V vocabulary, N predictions, C of them at once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# In float32: 1 MB fits into the caches of a CPU; a GPU wants few and large pieces, and 256 MB are little to it.
NUMBERS_AT_ONCE = {"cpu": 2**18, "cuda": 2**26}


def predictions_at_once(logits_NV: Tensor) -> int:
    """How many rows of logits are widened to float32 together."""
    return max(1, NUMBERS_AT_ONCE.get(logits_NV.device.type, 2**18) // logits_NV.size(1))


def summed_cross_entropy(logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> Tensor:
    """`objectives.next_token.summed_cross_entropy`."""
    return SummedCrossEntropy.apply(logits_NV, targets_N, ignore_index)  # type: ignore[no-any-return,no-untyped-call]


class SummedCrossEntropy(torch.autograd.Function):
    """The gradient of -log softmax(z)[target] with respect to z is softmax(z) minus the one-hot target.

    It is found along with the loss, some predictions at a time, and rounded to the format of the logits, as it would
    be anyway on its way into the products before them. What stays until the backward pass is this gradient alone.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> Tensor:
        n_at_once = predictions_at_once(logits_NV)
        wide = torch.promote_types(logits_NV.dtype, torch.float32)
        gradient_NV = torch.empty_like(logits_NV) if logits_NV.requires_grad else None
        nats = []
        for start in range(0, len(targets_N), n_at_once):
            rows = slice(start, start + n_at_once)
            targets_C = targets_N[rows]
            log_p_CV = logits_NV[rows].log_softmax(dim=-1, dtype=wide)
            nats.append(F.nll_loss(log_p_CV, targets_C, ignore_index=ignore_index, reduction="sum"))
            if gradient_NV is not None:
                counts_C1 = (targets_C != ignore_index)[:, None]
                gradient_CV = log_p_CV.exp_().mul_(counts_C1)
                gradient_CV.scatter_add_(1, targets_C.clamp(min=0)[:, None], -counts_C1.to(wide))
                gradient_NV[rows] = gradient_CV
        ctx.save_for_backward(gradient_NV)
        return torch.stack(nats).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV * gradient, None, None

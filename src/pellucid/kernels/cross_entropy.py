"""Cross-entropy of low-precision logits, without a float32 copy of all of them.

Shapes: V vocabulary, N predictions, C of them at once.
"""

from typing import Any

import torch
from torch import Tensor

# In float32: 1 MB fits into a CPU's caches; a GPU wants few large pieces, and can spare 256 MB.
NUMBERS_AT_ONCE = {"cpu": 2**18, "cuda": 2**26}


def predictions_at_once(logits_NV: Tensor) -> int:
    """The number of rows of logits that are converted to float32 together."""
    return max(1, NUMBERS_AT_ONCE.get(logits_NV.device.type, 2**18) // logits_NV.size(1))


def summed_cross_entropy(logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> Tensor:
    """A version of `objectives.next_token.summed_cross_entropy` that needs less memory."""
    return SummedCrossEntropy.apply(logits_NV, targets_N, ignore_index)  # type: ignore[no-any-return,no-untyped-call]


class SummedCrossEntropy(torch.autograd.Function):
    """The gradient of -log softmax(z)[target] with respect to z is softmax(z) minus the one-hot target.

    It is computed along with the loss, some predictions at a time, and rounded to the dtype of the logits, as backward
    would round it anyway. Nothing else is stored for the backward pass. One softmax serves both: on a CPU, PyTorch
    computes it faster than log_softmax and exp.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> Tensor:
        n_at_once = predictions_at_once(logits_NV)
        wide = torch.promote_types(logits_NV.dtype, torch.float32)
        gradient_NV = torch.empty_like(logits_NV) if logits_NV.requires_grad else None
        nats = []
        for start in range(0, len(targets_N), n_at_once):
            rows = slice(start, start + n_at_once)
            logits_CV, is_counted_C1 = logits_NV[rows].to(wide), targets_N[rows, None] != ignore_index
            targets_C1 = targets_N[rows, None].clamp(min=0)
            p_CV = logits_CV.softmax(dim=-1)
            # The largest logit z has the probability p = e^z / Z, so log Z = z - log p: exact, as p is at least 1/V.
            log_Z_C1 = logits_CV.amax(dim=-1, keepdim=True) - p_CV.amax(dim=-1, keepdim=True).log()
            nats.append(torch.where(is_counted_C1, log_Z_C1 - logits_CV.gather(1, targets_C1), 0).sum())
            if gradient_NV is not None:
                gradient_NV[rows] = p_CV.scatter_add_(1, targets_C1, -torch.ones_like(log_Z_C1)).mul_(is_counted_C1)
        ctx.save_for_backward(gradient_NV)
        return torch.stack(nats).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (gradient_NV,) = ctx.saved_tensors
        return gradient_NV * gradient, None, None

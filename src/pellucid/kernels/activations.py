"""Activations with hand-written gradients."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def relu_squared(x: Tensor) -> Tensor:
    """A faster `model.feed_forward.relu_squared`."""
    if torch.is_grad_enabled():
        return ReLUSquared.apply(x)  # type: ignore[no-any-return,no-untyped-call]
    r = F.relu(x)
    return r * r


class ReLUSquared(torch.autograd.Function):
    """y = r^2 with r = max(0, x), and dL/dx = 2 r dL/dy: where x is negative, r is 0 already.

    Autograd would go through r^2 and max one after the other, and store x besides r.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        r = F.relu(x)
        ctx.save_for_backward(r)
        return r * r

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        r: Tensor = ctx.saved_tensors[0]
        return (gradient * r).mul_(2)

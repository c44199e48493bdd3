"""RoPE in fewer passes through memory, with its gradient by hand.

Shapes: B batch, T positions, H heads, K head width, I = K/2 pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rotate_pairs(x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
    """`model.positions.rotate_pairs`."""
    if torch.is_grad_enabled():
        return Rotation.apply(x_BHTK, cos_TK, sin_TI)  # type: ignore[no-any-return,no-untyped-call]
    return _rotated(x_BHTK, cos_TK, sin_TI)


class Rotation(torch.autograd.Function):
    """The gradient of a rotation is the rotation back: one pass, where autograd takes two."""

    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
        ctx.save_for_backward(cos_TK, sin_TI)
        return _rotated(x_BHTK, cos_TK, sin_TI)

    @staticmethod
    def backward(ctx: Any, gradient_BHTK: Tensor) -> tuple[Tensor, None, None]:
        cos_TK, sin_TI = ctx.saved_tensors
        return _rotated(gradient_BHTK, cos_TK, -sin_TI), None, None


def _rotated(x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
    a_BHTI, b_BHTI = x_BHTK.chunk(2, dim=-1)
    turned_BHTK = x_BHTK * cos_TK
    turned_a_BHTI, turned_b_BHTI = turned_BHTK.chunk(2, dim=-1)
    turned_a_BHTI.addcmul_(b_BHTI, sin_TI, value=-1)
    turned_b_BHTI.addcmul_(a_BHTI, sin_TI)
    return turned_BHTK

"""RoPE in fewer passes through memory, with a hand-written gradient.

Shapes: B batch, T positions, H heads, K head width, I pairs that are rotated: K/2, or fewer.
"""

from typing import Any

import torch
from torch import Tensor


def rotate_pairs(x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
    """A faster `model.positions.rotate_pairs`."""
    if torch.is_grad_enabled():
        return Rotation.apply(x_BHTK, cos_TK, sin_TI)  # type: ignore[no-any-return,no-untyped-call]
    return _rotated(x_BHTK, cos_TK, sin_TI)


class Rotation(torch.autograd.Function):
    """The backward pass of a rotation is the inverse rotation: one pass through memory, where autograd takes two."""

    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
        ctx.save_for_backward(cos_TK, sin_TI)
        return _rotated(x_BHTK, cos_TK, sin_TI)

    @staticmethod
    def backward(ctx: Any, gradient_BHTK: Tensor) -> tuple[Tensor, None, None]:
        cos_TK, sin_TI = ctx.saved_tensors
        return _rotated(gradient_BHTK, cos_TK, -sin_TI), None, None


def _rotated(x_BHTK: Tensor, cos_TK: Tensor, sin_TI: Tensor) -> Tensor:
    n_pairs = sin_TI.size(-1)
    turned_BHTK = x_BHTK * cos_TK  # the cosine of a coordinate that stays is 1
    turned_BHTK.narrow(-1, 0, n_pairs).addcmul_(x_BHTK.narrow(-1, n_pairs, n_pairs), sin_TI, value=-1)
    turned_BHTK.narrow(-1, n_pairs, n_pairs).addcmul_(x_BHTK.narrow(-1, 0, n_pairs), sin_TI)
    return turned_BHTK

"""Matrix products in float32 by oneDNN, where they are large enough to gain from it.

PyTorch computes float32 products on a CPU with MKL, which leaves half of the vector units of AMD's CPUs unused.

Shapes: N rows (B of them, when B texts are written), I inputs, O outputs.
"""

import functools
import platform
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FEWEST_NUMBERS = 2**17  # for smaller matrices, oneDNN's preparation of a call takes longer than it saves
PACKED_FOR_ROWS = 16  # the order for so many rows suits other numbers as well
FEWEST_MULTIPLICATIONS = 2**24  # in training, where it prepares three calls


def gains_from_packing(weight_OI: Tensor) -> bool:
    """Whether `packed_product` is faster: for a large float32 matrix, on a CPU with oneDNN.

    For a single row it needs two threads, as MKL uses only one; with one thread they are about equal.
    """
    return is_for_onednn(weight_OI) and weight_OI.numel() >= FEWEST_NUMBERS


def packed_product(weight_OI: Tensor, bias_O: Tensor | None) -> Callable[[Tensor], Tensor]:
    """x -> x W^T + b for rows x, with W copied into the order in which oneDNN's kernel reads it.

    Later changes of W are not seen.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous(), PACKED_FOR_ROWS)
    by_onednn = torch.ops.mkldnn._linear_pointwise.default  # looked up once, as that takes time
    return lambda x_BI: by_onednn(x_BI, packed, bias_O, "none", [], None)


def with_faster_products(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The model's forward pass with large linear layers, and their gradients, computed by oneDNN."""

    def forward(tokens_BT: Tensor) -> Tensor:
        with FasterProducts():
            return model(tokens_BT)  # type: ignore[no-any-return]

    return forward


class FasterProducts(TorchFunctionMode):
    """While this context is active, `F.linear` is computed by `LinearByOneDNN` where that is faster."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function is F.linear and not named and gains_in_training(*arguments):
            return LinearByOneDNN.apply(*arguments, *[None] * (3 - len(arguments)))  # type: ignore[no-untyped-call]
        return function(*arguments, **(named or {}))


def gains_in_training(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> bool:
    is_large = x.dim() > 1 and x.numel() * len(weight_OI) >= FEWEST_MULTIPLICATIONS
    return is_large and is_for_onednn(x) and is_for_onednn(weight_OI)


def is_for_onednn(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and has_onednn()


@functools.cache
def has_onednn() -> bool:
    """Whether PyTorch has oneDNN for x86; on other CPUs it chooses well by itself."""
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return is_x86 and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


class LinearByOneDNN(torch.autograd.Function):
    """y = x W^T + b, and for dL/dy = g: dL/dx = g W, dL/dW = g^T x, dL/db = the sum of g's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_OI)
        return product(x, weight_OI, bias_O)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight_OI = ctx.saved_tensors
        gradient_NO, x_NI = gradient.flatten(end_dim=-2), x.flatten(end_dim=-2)
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        gradient_x = product(gradient, weight_OI.T) if wants_x else None
        gradient_OI = transposed_product(gradient_NO, x_NI) if wants_weight else None
        return gradient_x, gradient_OI, gradient_NO.sum(dim=0) if wants_bias else None


def product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b."""
    return torch.ops.mkldnn._linear_pointwise(x, weight_OI, bias_O, "none", [], None)  # type: ignore[no-any-return]


def transposed_product(gradient_NO: Tensor, x_NI: Tensor) -> Tensor:
    """g^T x, with the factor of fewer columns first, which makes oneDNN up to twice as fast."""
    if gradient_NO.size(1) < x_NI.size(1):
        return product(gradient_NO.T, x_NI.T)
    return product(x_NI.T, gradient_NO.T).T

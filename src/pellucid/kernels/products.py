"""Matrix products in float32 on a CPU, by whichever of PyTorch's two libraries is faster here.

PyTorch computes them with MKL. On AMD's CPUs with AVX-512 oneDNN is twice as fast, on older ones up to 30 % faster or
slower: it depends on the CPU and on the product. So training measures: the first product of each kind and size is
computed in every way, and those after it in the fastest way.

Shapes: N rows, I inputs, O outputs.
"""

import functools
import platform
from collections.abc import Callable, Sequence
from timeit import timeit
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEWEST_NUMBERS = 2**17  # for smaller matrices, the preparation of a call takes longer than it saves
FEWEST_MULTIPLICATIONS = 2**24  # in training: smaller products are not measured
ROWS_MEASURED, TURNS = 1024, 3  # so many rows of a product, so often each way: all together as long as an update


def gains_from_layout(*weights_OI: Tensor) -> bool:
    """Whether `large_product` is faster for a few rows: for a large float32 matrix, on a CPU with oneDNN."""
    is_for_onednn = weights_OI[0].dtype == torch.float32 and weights_OI[0].device.type == "cpu" and has_onednn()
    return is_for_onednn and sum(weight_OI.numel() for weight_OI in weights_OI) >= FEWEST_NUMBERS


def with_faster_products(model: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The model's forward pass with large linear layers, and their gradients, computed by the faster library."""

    def forward(tokens_BT: Tensor) -> Tensor:
        with FasterProducts():
            return model(tokens_BT)

    return forward


class FasterProducts(TorchFunctionMode):
    """While this context is active, `F.linear` is computed by `FasterLinear` where that may gain."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function is F.linear and not named and may_gain(*arguments):
            return FasterLinear.apply(*arguments, *[None] * (3 - len(arguments)))  # type: ignore[no-untyped-call]
        return function(*arguments, **(named or {}))


def may_gain(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> bool:
    is_large = x.dim() > 1 and x.numel() * len(weight_OI) >= FEWEST_MULTIPLICATIONS
    return is_large and all(each.dtype == torch.float32 and each.device.type == "cpu" for each in (x, weight_OI))


@functools.cache
def has_onednn() -> bool:
    """Whether PyTorch has oneDNN for x86; on other CPUs it packs matrices by itself."""
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    return is_x86 and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


class FasterLinear(torch.autograd.Function):
    """y = x W^T + b, and for dL/dy = g: dL/dx = g W, dL/dW = g^T x, dL/db = the sum of g's rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight_OI)
        y_NO = by_the_fastest("x W^T", weight_OI.shape, [x.flatten(end_dim=-2)], weight_OI, bias_O)
        return y_NO.view(*x.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight_OI = ctx.saved_tensors
        gradient_NO, x_NI, shape_OI = gradient.flatten(end_dim=-2), x.flatten(end_dim=-2), weight_OI.shape
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        gradient_x = by_the_fastest("g W", shape_OI, [gradient_NO], weight_OI).view_as(x) if wants_x else None
        gradient_OI = by_the_fastest("g^T x", shape_OI, [gradient_NO, x_NI]) if wants_weight else None
        return gradient_x, gradient_OI, gradient_NO.sum(dim=0) if wants_bias else None


def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b, by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], None)  # type: ignore[no-any-return]


# Each kind of product, in every way that it can be computed. "Transposed" is the same product seen from its other side.
WAYS: dict[str, dict[str, Callable[..., Tensor]]] = {
    "x W^T": {
        "PyTorch": lambda x_NI, weight_OI, bias_O: F.linear(x_NI, weight_OI, bias_O),
        "oneDNN": lambda x_NI, weight_OI, bias_O: product(x_NI, weight_OI, bias_O),
    },
    "g W": {
        "PyTorch": lambda gradient_NO, weight_OI: gradient_NO @ weight_OI,
        "oneDNN": lambda gradient_NO, weight_OI: product(gradient_NO, weight_OI.T),
    },
    "g^T x": {
        "PyTorch": lambda gradient_NO, x_NI: gradient_NO.T @ x_NI,
        "oneDNN": lambda gradient_NO, x_NI: product(gradient_NO.T, x_NI.T),
        "oneDNN, transposed": lambda gradient_NO, x_NI: product(x_NI.T, gradient_NO.T).T.contiguous(),
    },
}
# The fastest way for each kind and size of product: kept for the process, and saved with a run, as another way rounds
# otherwise.
CHOSEN: dict[str, str] = {}


def by_the_fastest(kind: str, shape_OI: Sequence[int], of_rows: Sequence[Tensor], *others: Tensor | None) -> Tensor:
    """A product of this kind, in the way that was the fastest when one with a matrix of this shape was first asked for.

    of_rows: its factors of N rows each, of which the first are enough to measure.
    """
    where = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    name = f"{kind}, W {shape_OI[0]} x {shape_OI[1]}, {where}"
    if CHOSEN.get(name) not in WAYS[kind]:  # another version's run may name a way that is gone
        CHOSEN[name] = fastest(WAYS[kind], [*(factor[:ROWS_MEASURED] for factor in of_rows), *others])
    return WAYS[kind][CHOSEN[name]](*of_rows, *others)


def fastest(ways: dict[str, Callable[..., Tensor]], factors: Sequence[Tensor | None]) -> str:
    """The way that was the fastest at its best, as whatever else the machine does can only make it slower."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "PyTorch"
    once = {way: functools.partial(product, *factors) for way, product in ways.items()}
    turns = [(timeit(product, number=1), way) for _ in range(TURNS) for way, product in once.items()]
    return min(turns)[1]

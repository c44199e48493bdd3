"""Lean forms: what a layer computes, for one token per sequence. The layers' own files build them with these functions.

One token is so little work that a small model spends its time on the calls, not on the sums: a kernel takes
microseconds to start, a module one more. So each layer has a method `on_one_token`, which does once what need not be
done per token: the matrices of queries, keys and values become one, all are laid out for x @ W, and cast to the format
that products are computed in. Weights changed later are not seen.

A lean form stands beside the layer's `forward` and calls none of the functions that `forward` calls. So each checks the
other: `generation/single_token.py` compares them on the model at hand, and writes with lean forms only if they agree.

Shapes: B sequences, D model, I inputs, O outputs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.kernels.products import gains_from_layout
from pellucid.model.language_model import product_dtype

OnOneToken = Callable[..., Tensor]  # x_BD, and what else the layer's forward gets
Projection = Callable[[Tensor], Tensor]


def on_one_token(layer: Any) -> OnOneToken:
    """The lean form of a layer. One that has none, or that has hooks, is called as it is."""
    if has_lean_form(layer):
        return layer.on_one_token()  # type: ignore[no-any-return]
    layer = as_it_is(layer)
    return lambda x_BD, *inputs: layer(x_BD[:, None], *inputs)[:, 0]


_CALLED: ContextVar[list[str] | None] = ContextVar("called", default=None)


def as_it_is(part: Any) -> Any:
    """Note down a part of the model that lean forms call as it is: they check nothing about it."""
    if (names := _CALLED.get()) is not None:
        names.append(getattr(part, "__name__", type(part).__name__))
    return part


@contextmanager
def called_as_they_are() -> Iterator[list[str]]:
    """Inside, whoever makes lean forms gets the names of the parts that they call as they are."""
    names: list[str] = []
    reset = _CALLED.set(names)
    try:
        yield names
    finally:
        _CALLED.reset(reset)


def has_lean_form(layer: Any) -> bool:
    return hasattr(layer, "on_one_token") and not has_hooks(layer)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module does more than its `forward`."""
    return bool(
        module._forward_pre_hooks or module._forward_hooks or module._backward_pre_hooks or module._backward_hooks
    )


def as_function(module: Any) -> Projection:
    """The function of a module that treats each vector by itself, such as a norm."""
    if has_lean_form(module):
        return module.on_one_token()  # type: ignore[no-any-return]
    if not isinstance(module, nn.Identity):
        as_it_is(module)
    return module if has_hooks(module) else module.forward  # type: ignore[no-any-return]


def side_by_side(*layers: nn.Module) -> Projection:
    """Several linear layers of the same input as one: their outputs stand one after the other."""
    if own := [layer for layer in layers if type(layer) is not nn.Linear or has_hooks(layer)]:
        for layer in own:
            as_it_is(layer)
        return lambda x_BI: torch.cat([layer(x_BI) for layer in layers], dim=-1)
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    return projection(*weights, bias_O=None if biases[0] is None else torch.cat(biases))  # type: ignore[arg-type]


def projection(*weights_OI: Tensor, bias_O: Tensor | None = None) -> Projection:
    """x -> x W^T + b for rows x, with the matrices one above the other, laid out in memory as they are read."""
    dtype = product_dtype(weights_OI[0])
    bias_O = None if bias_O is None else bias_O.detach().to(dtype)
    if dtype == torch.float32 and gains_from_layout(*weights_OI):
        from pellucid.kernels.large_products import large_product

        return large_product(weights_OI, bias_O)
    weight_IO = torch.cat(weights_OI).detach().to(dtype).T.contiguous()
    if bias_O is None:
        return lambda x_BI: torch.mm(x_BI, weight_IO)
    return lambda x_BI: torch.addmm(bias_O, x_BI, weight_IO)


def is_close(x: Tensor, y: Tensor) -> bool:
    """Whether x is y but for rounding: half of the digits of y's largest number are the same."""
    tolerance = sqrt(torch.finfo(y.dtype).eps) * float(y.nan_to_num().abs().max())
    return x.shape == y.shape and torch.allclose(x.to(y.dtype), y, rtol=0, atol=tolerance, equal_nan=True)

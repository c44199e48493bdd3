"""Device and number format.

Weights and optimizer moments are always float32. With bf16 or fp16, autocast runs matrix products in the short format
and everything that needs it (softmax, norms, the loss) in float32: "mixed precision" (Micikevicius et al. 2018).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from timeit import timeit
from typing import TypeVar

import torch
from torch import Tensor

from pellucid.errors import ConfigError

_log = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Precision:
    """A device and the format of its matrix products."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """The context for a forward pass in this precision."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def for_decoding(self) -> Precision:
        """The precision for writing text: float32 on a CPU, where converting to bfloat16 costs more than it saves."""
        return Precision(self.device, torch.float32) if self.device.type == "cpu" else self

    def computing(self, function: Callable[[Tensor], Item]) -> Callable[[Tensor], Item]:
        """The function of tokens, which are moved to the device, computed under `autocast`."""

        def computed(tokens: Tensor) -> Item:
            with self.autocast():
                return function(tokens.to(self.device))

        return computed

    def making(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items, each computed under `autocast`, which is left before the item is yielded."""

        def make_next() -> Item | None:
            with self.autocast():
                return next(items, None)

        return iter(make_next, None)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """A scaler of the loss, so that fp16 gradients do not vanish; it does nothing in other formats."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)


def resolve_precision(device_name: str, precision_name: str) -> Precision:
    """The device and format of these names; `auto` is the best here: CUDA, MPS, then CPU; bf16 where it is faster.

    Raises ConfigError for a device or a format that this machine lacks.
    """
    device = _resolve_device(device_name)
    if precision_name == "auto":
        return Precision(device, torch.bfloat16 if has_bf16_hardware(device) else torch.float32)
    if precision_name == "fp16" and device.type != "cuda":
        raise ConfigError("train.precision", f"fp16 needs CUDA, not {device.type}", "use auto, bf16 or fp32")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return Precision(device, dtypes[precision_name])


def precision_here(device_name: str, precision_name: str) -> Precision:
    """As `resolve_precision`, but if this machine lacks the device or format, warn and return the best it has."""
    try:
        return resolve_precision(device_name, precision_name)
    except ConfigError as error:
        precision = resolve_precision("auto", "auto")
        _log.warning("%s; using %s instead", error.what, precision.device)
        return precision


def _resolve_device(name: str) -> torch.device:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, is_there in available.items() if is_there)
    if not available[name]:
        raise ConfigError("train.device", f"PyTorch finds no {name} device on this machine", "use auto or cpu")
    return torch.device(name)


def has_bf16_hardware(device: torch.device) -> bool:
    """Whether the device has units for bfloat16 that are faster than those for float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    may_gain = device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported()) and onednn_has_bfloat16()
    return may_gain and bf16_is_faster()


@functools.cache
def bf16_is_faster() -> bool:
    """Whether a product in bfloat16 takes less time than in float32: on a CPU, measured once, which takes 10 ms.

    AMD's units for bfloat16 do twice as much as those for float32, Intel's AMX ten times, but Intel's CPUs without
    AMX, or with AMX hidden by a virtual machine, only half.
    """
    squares = [torch.ones(512, 512, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    products = [functools.partial(torch.mm, square, square) for square in squares]
    turns = [[timeit(product, number=1) for product in products] for _ in range(5)]  # other programs slow some of them
    in_float32, in_bfloat16 = map(min, zip(*turns, strict=True))
    return bool(in_bfloat16 < in_float32)


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN has bfloat16 kernels (products, LSTMs) here: they need AVX-512, if ONEDNN_MAX_CPU_ISA allows."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

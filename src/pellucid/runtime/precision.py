"""Which device computes, and in which number format.

Weights and optimizer moments are always float32. Under bf16 or fp16, autocast runs the matrix products in the short
format and leaves to float32 what needs it (softmax, norms, the loss): "mixed precision" (Micikevicius et al. 2018).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch

from pellucid.errors import ConfigError

_log = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Precision:
    """A device and the format of its matrix products."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which a forward pass runs."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def for_decoding(self) -> Precision:
        """float32 on a CPU, where one token is too little work to pay for converting numbers to bfloat16."""
        return Precision(self.device, torch.float32) if self.device.type == "cpu" else self

    def making(self, items: Iterator[Item]) -> Iterator[Item]:
        """Makes each item under `autocast`, and leaves it before handing the item over. A `yield` inside would not."""

        def make_next() -> Item | None:
            with self.autocast():
                return next(items, None)

        return iter(make_next, None)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """Scales the loss up so that fp16 gradients do not vanish; does nothing in the other formats."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)


def resolve_precision(device_name: str, precision_name: str) -> Precision:
    """Turns `auto` into the best this machine has: CUDA before MPS before CPU; bf16 where the hardware computes in it.

    Raises ConfigError for a device or a format that is not to be had here.
    """
    device = _resolve_device(device_name)
    if precision_name == "auto":
        return Precision(device, torch.bfloat16 if has_bf16_hardware(device) else torch.float32)
    if precision_name == "fp16" and device.type != "cuda":
        raise ConfigError("train.precision", f"fp16 needs CUDA, not {device.type}", "use auto, bf16 or fp32")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return Precision(device, dtypes[precision_name])


def precision_here(device_name: str, precision_name: str) -> Precision:
    """Returns what `resolve_precision` does; if this machine lacks that, warns and returns the best it has."""
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
    """Whether it has units for bfloat16; others compute it too, but no faster than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported()) and onednn_has_bfloat16()


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN, which computes products and LSTMs on a CPU, has kernels for bfloat16: they need AVX-512.

    Not if ONEDNN_MAX_CPU_ISA holds it to less.
    """
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

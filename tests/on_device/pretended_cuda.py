"""A GPU that is not there: tensors of a CPU that count as a GPU's, so that faults which only a GPU shows are seen here.

A tensor belongs to the device that its memory is marked with. Every call of PyTorch goes through `PretendedCuda`, which
refuses what a GPU refuses: tensors of two devices in one operation, `.numpy()`, numbers of two formats in an indexed
assignment. Under autocast it gives each operation the format that CUDA's lists give it; they are longer than a CPU's.
Fused attention leaves the gaps between its heads that it leaves there.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda")

# https://docs.pytorch.org/docs/stable/amp.html lists what autocast computes in the short format, and what in float32.
SHORT = {
    *(F.linear, F.scaled_dot_product_attention, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm),
    *(Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm, torch.einsum),
}
WIDE = {
    *(F.layer_norm, torch.layer_norm, F.softmax, F.log_softmax, F.nll_loss, F.cross_entropy, torch.norm),
    *(getattr(Tensor, name) for name in ("softmax", "log_softmax", "cumsum", "sum", "prod", "norm", "__pow__")),
    *(getattr(Tensor, name) for name in ("square", "exp", "expm1", "log", "log1p", "rsqrt", "reciprocal", "pow")),
    *(getattr(torch, name) for name in ("softmax", "log_softmax", "cumsum", "sum", "exp", "expm1", "log", "rsqrt")),
}
RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh}
# What may meet tensors of two devices: copies, and a CPU's whole numbers as places in a GPU's tensor.
BRIDGES = {
    *(torch._has_compatible_shallow_copy_type, Tensor.copy_, Tensor.to, Tensor.data.__set__, Tensor.set_),
    *(Tensor.__getitem__, Tensor.__setitem__),
}


class PretendedCuda(TorchFunctionMode):
    """While it is on, `device="cuda"` works."""

    def __init__(self) -> None:
        super().__init__()
        self.short: torch.dtype | None = None  # the format of autocast, if that is on
        self._marked: set[int] = set()  # memory of the GPU

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:
            return torch.device("cuda", 0) if self.has(args[0]) else func(*args)
        if func == Tensor.is_cuda.__get__:
            return self.has(args[0])
        if func in (torch.device, torch._C._nn._parse_to):  # names of devices, no tensors
            return func(*args, **kwargs)
        tensors = tensors_of((args, kwargs))
        is_here = any(map(self.has, tensors))
        target = self._target(func, args, kwargs)
        if is_here:
            self._check(func, args, tensors)
            if self.short is not None and kwargs.get("dtype") is None:
                args, kwargs = self._autocast(func, args, kwargs)
        if target is not None:
            args, kwargs = tree_map(lambda x: torch.device("cpu") if self._names_device(x) else x, (args, kwargs))
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention and is_here and result.dtype != torch.float32:
            width = result.size(-1)
            result = F.pad(result, (0, -width % 8))[..., :width]  # its kernels take widths divisible by 8
        goes_to_cuda = is_here if target is None else target.type == "cuda"
        return tree_map(lambda x: self._put(x, goes_to_cuda, tensors) if isinstance(x, Tensor) else x, result)

    def has(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._marked

    def _put(self, tensor: Tensor, on_cuda: bool, inputs: list[Tensor]) -> Tensor:
        """The result of an operation, in memory of its device: what would be moved is copied."""
        if self.has(tensor) == on_cuda:
            return tensor
        if any(tensor.untyped_storage()._cdata == each.untyped_storage()._cdata for each in inputs):
            tensor = tensor.clone()
        if on_cuda:
            storage = tensor.untyped_storage()
            self._marked.add(storage._cdata)
            weakref.finalize(storage, self._marked.discard, storage._cdata)
        return tensor

    def _target(self, func: Any, args: Any, kwargs: Any) -> torch.device | None:
        """The device that a call names, if it names one."""
        if func is Tensor.cpu:
            return torch.device("cpu")
        if func is Tensor.cuda:
            return CUDA
        named = [x for x in (*args, *kwargs.values()) if self._names_device(x)]
        if named:
            return torch.device(named[0])
        if func is Tensor.to and len(args) > 1 and isinstance(args[1], Tensor):
            return CUDA if self.has(args[1]) else torch.device("cpu")
        makes_new = getattr(func, "__module__", None) in ("torch", None) and not tensors_of((args, kwargs))
        return torch.device("cpu") if makes_new and "device" not in kwargs else None

    def _names_device(self, x: Any) -> bool:
        return isinstance(x, torch.device) or (isinstance(x, str) and x in ("cpu", "cuda", "cuda:0"))

    def _check(self, func: Any, args: Any, tensors: list[Tensor]) -> None:
        if func in (Tensor.numpy, Tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        if func is Tensor.__setitem__ and isinstance(args[2], Tensor):
            places = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, Tensor | list)]
            if places and args[2].dtype != args[0].dtype and args[2].dim():
                raise RuntimeError(f"Index put requires the same dtypes, got {args[0].dtype} and {args[2].dtype}")
            if places and args[2].dim() and self.has(args[0]) != self.has(args[2]):
                raise RuntimeError("expected all tensors to be on the same device: index_put_")
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            if not self.has(args[0]) and any(map(self.has, tensors_of(args[1]))):
                raise RuntimeError("indices should be on the CPU: the tensor is")
            return
        elsewhere = [tensor for tensor in tensors if tensor.dim() and not self.has(tensor)]
        if elsewhere and func not in BRIDGES:
            raise RuntimeError(f"expected all tensors to be on the same device: {getattr(func, '__name__', func)}")

    def _autocast(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in RECURRENT and self.short != torch.float16:
            raise RuntimeError(
                "under autocast cuDNN computes recurrent layers in float16, whatever format is asked for"
            )
        dtype = self.short if func in SHORT else torch.float32 if func in WIDE else None
        if dtype is None:
            return args, kwargs

        def cast(x: Any) -> Any:
            is_short = isinstance(x, Tensor) and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
            return self._put(x.to(dtype), True, []) if is_short and self.has(x) and x.dtype != dtype else x

        return tree_map(cast, (args, kwargs))


def tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class PretendedGenerator(torch.Generator):
    """Draws on a CPU, whatever device it is said to belong to."""

    def __new__(cls, device: Any = "cpu") -> PretendedGenerator:
        return super().__new__(cls, "cpu")


def pretend(monkeypatch: pytest.MonkeyPatch) -> PretendedCuda:
    """Let PyTorch say that there is one GPU, until the test ends. Inside the returned mode, it computes."""
    import torch._dynamo.variables.torch  # takes seconds; it lists PyTorch's functions: before any is replaced here

    mode = PretendedCuda()
    autocast, is_enabled, dtype_of = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype

    @contextmanager
    def cuda_autocast(dtype: torch.dtype | None, enabled: bool) -> Any:
        before, mode.short = mode.short, dtype if enabled else None
        try:
            yield
        finally:
            mode.short = before

    def autocast_here(device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, **options: Any) -> Any:
        if device_type == "cuda":
            return cuda_autocast(dtype, enabled)
        return autocast(device_type, dtype, enabled, **options)

    def is_enabled_here(device_type: str) -> bool:
        return mode.short is not None if device_type == "cuda" else is_enabled(device_type)

    def dtype_here(device_type: str) -> torch.dtype:
        return mode.short if device_type == "cuda" and mode.short else dtype_of(device_type)

    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    monkeypatch.setattr(torch, "autocast", autocast_here)
    monkeypatch.setattr(torch, "is_autocast_enabled", is_enabled_here)
    monkeypatch.setattr(torch, "get_autocast_dtype", dtype_here)
    monkeypatch.setattr(torch, "Generator", PretendedGenerator)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 * 10**9))
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
    monkeypatch.setattr("torch.amp.grad_scaler.torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    return mode

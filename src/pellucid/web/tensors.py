"""Tensors on their way to a browser: {"shape", "dtype", "data"}, data in base64, row by row.

Bytes are in the order of this machine, which is that of all machines that browsers run on.
"""

from __future__ import annotations

import base64
from typing import Literal, TypedDict

import torch
from torch import Tensor

DType = Literal["float16", "float32", "int32"]


class Packed(TypedDict):
    shape: list[int]
    dtype: DType
    data: str


def packed(x: Tensor, dtype: DType = "float32") -> Packed:
    """float16 keeps three digits, enough for weights between 0 and 1; what is compared to 1e-3 goes as float32."""
    array = x.detach().to("cpu", getattr(torch, dtype)).contiguous().numpy()
    return {"shape": list(x.shape), "dtype": dtype, "data": base64.b64encode(array.tobytes()).decode("ascii")}

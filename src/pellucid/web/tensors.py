"""Tensors for a browser: {"shape", "dtype", "data"}, data in base64, row by row.

The byte order is this machine's, which is that of all machines that browsers run on.
"""

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
    """A tensor for JSON. float16 keeps three digits, enough for attention weights; float32 is for exact comparisons."""
    array = x.detach().to("cpu", getattr(torch, dtype)).contiguous().numpy()
    return {"shape": list(x.shape), "dtype": dtype, "data": base64.b64encode(array.tobytes()).decode("ascii")}

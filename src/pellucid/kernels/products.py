"""Products of many rows with a large matrix that stays the same, of which decoding several texts consists.

Shapes: B rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Below either, oneDNN's preparation of each call takes longer than it saves.
FEWEST_ROWS, FEWEST_NUMBERS = 8, 2**17


def gains_from_packing(weight_OI: Tensor) -> bool:
    """Whether `packed_product` is faster for many rows: for a large float32 matrix, on a CPU with oneDNN."""
    is_right_kind = weight_OI.device.type == "cpu" and weight_OI.dtype == torch.float32
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(is_right_kind and weight_OI.numel() >= FEWEST_NUMBERS and has_onednn)


def packed_product(weight_OI: Tensor, bias_O: Tensor | None) -> Callable[[Tensor], Tensor]:
    """x -> x W^T + b for rows x, by oneDNN, with W copied into the order in which its kernel reads it.

    PyTorch gives float32 products on a CPU to MKL, which on AMD's CPUs leaves half of their vector units unused. Later
    changes of W are not seen.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach().contiguous(), 2 * FEWEST_ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default
    return lambda x_BI: product(x_BI, packed, bias_O, "none", [], None)

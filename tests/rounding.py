"""Equal but for rounding, on every computer: the bound follows from the number format and the size of the numbers."""

import torch
from torch import Tensor


def assert_equal_to_rounding(found: Tensor, expected: Tensor, *, dtype: torch.dtype = torch.float32) -> None:
    """Sums in a few layers may cost float32 seven of its 24 bits, and bfloat16 four of its 8, in the largest number."""
    lost_bits = {torch.float32: 7, torch.bfloat16: 4}[dtype]
    bound = 2**lost_bits * torch.finfo(dtype).eps * expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=bound)

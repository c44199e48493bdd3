"""The number formats of an export."""

from typing import Literal

import torch
from torch import Tensor

from pellucid.errors import ConfigError, Fix, Option

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def rounded(name: str, tensor: Tensor, precision: Precision) -> Tensor:
    """The tensor in this format. Raises ConfigError if it has numbers that would become infinite."""
    converted = tensor.to(DTYPES[precision])
    if not converted.isfinite().all():
        most = f"{torch.finfo(converted.dtype).max:,.6g}"
        as_fp32, asked = (Option(f"--precision {each}", f'precision="{each}"') for each in ("fp32", precision))
        fix = Fix("export another checkpoint") if precision == "fp32" else Fix("export with {}", as_fp32)
        raise ConfigError(asked, f"{name} holds numbers beyond {most}", fix)
    return converted

"""The number formats of an export."""

from typing import Literal

import torch
from torch import Tensor

from pellucid.errors import ConfigError, Fix, Option

Precision = Literal["fp32", "bf16", "fp16", "q8_0", "q4_0"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
IN_BLOCKS, BLOCK = ("q8_0", "q4_0"), 32  # llama.cpp's: codes of 8 or 4 bits, and a scale for so many of a row


def rounded(name: str, tensor: Tensor, precision: Precision) -> Tensor:
    """The tensor as numbers of this format. Raises ConfigError for one in blocks, and if a number became infinite."""
    if precision in IN_BLOCKS:
        fix = Fix("export with {}", Option("--to gguf", 'to="gguf"'))
        raise ConfigError(option(precision), "only a GGUF file holds numbers in blocks", fix)
    converted = tensor.to(DTYPES[precision])
    if not converted.isfinite().all():
        most = f"{torch.finfo(converted.dtype).max:,.6g}"
        fix = Fix("export another checkpoint") if precision == "fp32" else Fix("export with {}", option("fp32"))
        raise ConfigError(option(precision), f"{name} holds numbers beyond {most}", fix)
    return converted


def option(precision: Precision) -> Option:
    return Option(f"--precision {precision}", f'precision="{precision}"')

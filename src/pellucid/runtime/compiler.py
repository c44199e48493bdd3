"""Finds out whether torch.compile works here: it needs a C++ compiler, or Triton on a GPU."""

from functools import cache

import torch

from pellucid.errors import ConfigError, is_out_of_memory


@cache
def require_compiler(device: torch.device) -> None:
    """Raise ConfigError, with the compiler's own words, unless PyTorch can compile a small function for this device."""
    try:
        torch.compile(torch.sin)(torch.ones(2, device=device))
    except Exception as error:  # Dynamo wraps what Inductor raises, which wraps what the compiler says
        if is_out_of_memory(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        fix = "install a C++ compiler (on Ubuntu: apt install g++), or leave it out"
        raise ConfigError("train.compile", f"PyTorch cannot compile here ({lines[0]})", fix) from error

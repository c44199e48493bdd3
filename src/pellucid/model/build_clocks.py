"""Builds RoPE whose clocks are stretched, or differ by layer; `build` has all else."""

from pellucid.config.model import RotaryConfig
from pellucid.model.clocks_by_layer import ClocksByLayer
from pellucid.model.positions import Rotary
from pellucid.model.stretch import stretched


def build_clocks(rope: RotaryConfig, context_length: int, head_width: int) -> Rotary:
    """RoPE as these knobs say."""
    stretch = None if rope.stretch is None else stretched(**rope.stretch.model_dump(), base=rope.base)
    clocks = context_length, head_width, rope.base, rope.rotated_width(head_width), stretch
    if rope.base_in_windows is None:
        return Rotary(*clocks)
    in_windows = rope.model_copy(update={"base": rope.base_in_windows, "base_in_windows": None, "stretch": None})
    return ClocksByLayer(*clocks, in_windows=build_clocks(in_windows, context_length, head_width))

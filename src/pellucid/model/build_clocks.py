"""RoPE whose clocks are stretched, or differ by layer, and how it is built; `build` has all else."""

from typing import Any

from pellucid.config.model import RotaryConfig
from pellucid.model.positions import Rotary
from pellucid.model.stretch import stretched


class ClocksByLayer(Rotary):
    """RoPE with two bases: layers with a window have faster clocks than those that see all tokens (equation 59).

    It is that of layers that see all tokens, and that of layers with a window is a part of it (Gemma 3, 2025).
    """

    def __init__(self, *clocks: Any, in_windows: Rotary) -> None:
        super().__init__(*clocks)
        self.in_windows = in_windows
        in_windows.equations = (*in_windows.equations, 59)


def build_clocks(rope: RotaryConfig, context_length: int, head_width: int) -> Rotary:
    """RoPE as these knobs say."""
    stretch = None if rope.stretch is None else stretched(**rope.stretch.model_dump(), base=rope.base)
    clocks = context_length, head_width, rope.base, rope.rotated_width(head_width), stretch
    if rope.base_in_windows is None:
        return Rotary(*clocks)
    in_windows = rope.model_copy(update={"base": rope.base_in_windows, "base_in_windows": None, "stretch": None})
    return ClocksByLayer(*clocks, in_windows=build_clocks(in_windows, context_length, head_width))

"""RoPE with two bases: layers with a window have faster clocks than those that see all tokens (equation 59)."""

from typing import Any

from pellucid.model.positions import Rotary


class ClocksByLayer(Rotary):
    """The positions of layers that see all tokens; those of layers with a window are a part of it (Gemma 3, 2025)."""

    def __init__(self, *clocks: Any, in_windows: Rotary) -> None:
        super().__init__(*clocks)
        self.in_windows = in_windows
        in_windows.equations = (*in_windows.equations, 59)

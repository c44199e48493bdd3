"""Slow clocks of RoPE run slower, so that a longer context looks to them like that of training (equation 49).

Shapes: T positions, I clocks.
"""

from dataclasses import dataclass
from math import pi

from torch import Tensor


@dataclass(frozen=True)
class Stretch:
    """As in Llama 3.1 (2024): a clock with fewer than `slow_turns` in `trained_length` tokens is slowed by `factor`.

    One with more than `fast_turns` is not slowed at all, and those between by something between.
    """

    factor: float
    trained_length: int
    slow_turns: float
    fast_turns: float

    def __call__(self, angles_TI: Tensor, speeds_I: Tensor) -> Tensor:
        """The angles of clocks that had these angles and speeds, in radians and radians per token."""
        turns_I = self.trained_length * speeds_I / (2 * pi)
        kept_I = ((turns_I - self.slow_turns) / (self.fast_turns - self.slow_turns)).clamp(0, 1)
        return angles_TI * (kept_I + (1 - kept_I) / self.factor)

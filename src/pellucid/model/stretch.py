"""Slow clocks of RoPE run slower, so that a longer context looks to them like that of training (equations 49 and 55).

Shapes: T positions, I clocks.
"""

from dataclasses import dataclass
from math import ceil, floor, log, pi
from typing import Any, ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """As in Llama 3.1 (2024): a clock with fewer than `slow_turns` in `trained_length` tokens is slowed by `factor`.

    One with more than `fast_turns` is not slowed at all, and those between by something between. Queries and keys grow
    by `attention_factor`.
    """

    factor: float
    trained_length: int
    slow_turns: float
    fast_turns: float
    attention_factor: float = 1.0

    equations: ClassVar[tuple[int, ...]] = (49,)

    def __call__(self, angles_TI: Tensor, speeds_I: Tensor) -> Tensor:
        """The cosines and sines (2, T, I) of clocks that had these angles and speeds, times the attention factor."""
        angles_TI = self.slowed(angles_TI, speeds_I)
        return self.attention_factor * torch.stack([angles_TI.cos(), angles_TI.sin()])

    def slowed(self, angles_TI: Tensor, speeds_I: Tensor) -> Tensor:
        """The angles of clocks that had these angles and speeds, in radians and radians per token."""
        kept_I = self.kept(speeds_I)
        return angles_TI * (kept_I + (1 - kept_I) / self.factor)

    def kept(self, speeds_I: Tensor) -> Tensor:
        """The share of its speed that each clock keeps, from 0 to 1."""
        turns_I = self.trained_length * speeds_I / (2 * pi)
        return ((turns_I - self.slow_turns) / (self.fast_turns - self.slow_turns)).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class StretchByNumber(Stretch):
    """As in YaRN (Peng et al. 2023): of the clocks between, each keeps less than the one before it, by equal steps.

    A clock of so many turns would have the number I ln(trained_length / (2 pi turns)) / ln(base). How these numbers are
    rounded and limited is as in YaRN's own code.
    """

    base: float

    equations: ClassVar[tuple[int, ...]] = (49, 55)

    def kept(self, speeds_I: Tensor) -> Tensor:
        width = 2 * len(speeds_I)
        first, last = (
            width * log(self.trained_length / (turns * 2 * pi)) / (2 * log(self.base))
            for turns in (self.fast_turns, self.slow_turns)
        )
        first, last = max(floor(first), 0), min(ceil(last), width - 1)
        numbers_I = torch.arange(len(speeds_I)).to(speeds_I)
        return 1 - ((numbers_I - first) / (last - first or 0.001)).clamp(0, 1)


def stretched(*, linear_in: str, base: float, **knobs: Any) -> Stretch:
    """The stretch with the knobs of `model.position.stretch`, of clocks with this base."""
    return Stretch(**knobs) if linear_in == "turns" else StretchByNumber(**knobs, base=base)

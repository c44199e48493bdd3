"""Numbers on figures: ticks that can be read on logarithmic axes too, and values told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import ArrayLike


def in_short(value: float, digits: int = 4) -> str:
    """A number as ticks bear it: 0.02, 1.5, 640, 20k, 3M, and from ten billion on 2·10¹⁵."""
    size = abs(value)
    if size >= 1e10 or 0 < size < 1e-4:
        power = int(np.floor(np.log10(size) + 1e-9))
        factor = f"{value / 10.0**power:.{min(digits, 3)}g}"
        exponent = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{exponent}" if factor == "1" else f"{factor}·10{exponent}"
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit and (unit > 1e3 or size >= 1e4):
            return f"{value / unit:.{digits}g}{name}"
    return f"{value:.{digits}g}"


def round_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """From 3 to `most` round numbers, evenly placed on a logarithmic axis; evenly spaced if the range is too narrow."""
    for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        ticks = [tick for tick in ticks if 0.999 * low <= tick <= 1.001 * high]
        if len(ticks) < 3:
            return [float(tick) for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]
        if len(ticks) <= most:
            return ticks
    every = -(-len(ticks) // most)
    return ticks[::every]


def ticks_at(values: ArrayLike) -> list[float] | None:
    """The values themselves as ticks, if they are few and apart enough for their labels."""
    distinct = np.unique(values)
    gaps = np.diff(distinct)
    if len(distinct) > 8 or (len(gaps) and gaps.min() < 0.07 * gaps.sum()):
        return None
    return [float(value) for value in distinct]


def log_x(axes: Axes, low: float, high: float, ticks: Sequence[float] | None = None) -> None:
    """A logarithmic axis from low to high, with ticks that need no exponents where they can do without."""
    axes.set(xscale="log", xlim=(low, high))
    _write_ticks(axes.xaxis, ticks or round_ticks(low, high))


def log_y(axes: Axes, low: float, high: float) -> None:
    axes.set(yscale="log", ylim=(low, high))
    _write_ticks(axes.yaxis, round_ticks(low, high))


def _write_ticks(axis: Axis, at: Sequence[float]) -> None:
    axis.set_ticks(at, [in_short(tick) for tick in at])
    axis.set_minor_locator(NullLocator())


def log_limits(values: ArrayLike) -> tuple[float, float]:
    """A little beyond the values above 0, for a logarithmic axis. Raises ValueError if there are none."""
    known = np.asarray(values, dtype=float)
    above_zero = known[known > 0]
    if not above_zero.size:
        raise ValueError("a logarithmic axis needs values above 0, and there are none")
    low, high = float(above_zero.min()), float(above_zero.max())
    margin = max((high / low) ** 0.06, 1.02)
    return low / margin, high * margin


def in_percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def told_apart(values: Sequence[float]) -> list[str]:
    """Three significant digits of each, or as many more, up to six, as it takes to tell the different ones apart."""
    for digits in (3, 4, 5, 6):
        texts = [in_short(value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts

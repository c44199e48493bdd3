"""Numbers on axes: readable ticks, also on logarithmic axes."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator
from numpy.typing import ArrayLike


def in_short(value: float, digits: int = 4) -> str:
    """A number as on a tick: 0.02, 1.5, 9640 and, from ten thousand on, with an SI prefix: 20k, 3M, 2P."""
    rounded = float(f"{value:.{digits}g}")
    return EngFormatter(sep="")(rounded) if abs(rounded) >= 1e4 else f"{rounded:.{digits}g}"


def in_percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def distinct_labels(values: Sequence[float]) -> list[str]:
    """The values with three significant digits, or more, up to six, if different ones would look equal."""
    for digits in (3, 4, 5, 6):
        texts = [in_short(value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def round_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """At most `most` round numbers for a logarithmic axis; evenly spaced ones if there are fewer than three."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high]
        if len(ticks) < 3:
            return [float(tick) for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]
        if len(ticks) <= most:
            break
    return ticks[:: -(-len(ticks) // most)]


def ticks_at(values: ArrayLike) -> list[float] | None:
    """The values themselves as ticks, if they are few and far enough apart for their labels; else None."""
    distinct = np.unique(values)
    gaps = np.diff(distinct)
    if len(distinct) > 8 or (len(gaps) and gaps.min() < 0.07 * gaps.sum()):
        return None
    return [float(value) for value in distinct]


def log_axis(
    axes: Axes, which: Literal["x", "y"], limits: tuple[float, float], ticks: Sequence[float] | None = None
) -> None:
    """Make an axis logarithmic, with these limits and plain numbers as ticks, not powers of ten."""
    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    at = ticks or round_ticks(*limits)
    axis.set_ticks(at, [in_short(tick) for tick in at])
    axis.set_minor_locator(NullLocator())


def log_limits(values: ArrayLike) -> tuple[float, float]:
    """Limits of a logarithmic axis, a little beyond the positive values. Raises ValueError if there are none."""
    numbers = np.asarray(values, dtype=float)
    above_zero = numbers[numbers > 0]
    if not above_zero.size:
        raise ValueError("a logarithmic axis needs values above 0, and there are none")
    low, high = float(above_zero.min()), float(above_zero.max())
    margin = max((high / low) ** 0.06, 1.02)
    return low / margin, high * margin

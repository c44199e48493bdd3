"""How every figure looks: palette, fonts, numbers on axes, and labels next to their lines."""

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from pellucid.files import written_whole

# matplotlib's settings for all figures. SVG keeps text as text, and equal drawings give equal bytes.
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "text.parse_math": False,  # a $ in a label is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "pellucid",
}

# What a colour means, here as in the light theme of the page (web/static/style.css). tests/test_colours.py measures
# that the colour-blind tell them apart, and everybody in grey. A loss on held-out text is the model's, one in training
# is surprise, and a floor is the truth's.
MODEL, TRUTH, RIVAL, SURPRISE = "#007d5f", "#000000", "#7a2f73", "#e06c0c"

# For variants, Okabe and Ito's palette, which suits the colour-blind; grey replaces its yellow, which is too pale for a
# line, and black is reserved for floors.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
Dashes = Literal["-", ""] | tuple[float, Sequence[float]]  # matplotlib: offset, then lengths of dashes and gaps
DASHES: tuple[Dashes, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and dashes of one variant; two of the three survive printing in grey."""

    color: str
    marker: str
    linestyle: Dashes


def line_style(index: int) -> LineStyle:
    """The style of the i-th variant; colours repeat after 7, markers after 8."""
    return LineStyle(PALETTE[index % 7], MARKERS[index % 8], DASHES[(index + index // 7) % 4])


def styles_of(names: Iterable[str]) -> dict[str, LineStyle]:
    """The style of each variant: a hue for those whose names begin with the same word, and a shade for each of them."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        families[re.split(r"[ ,=]", name)[0]].append(name)
    if len(families) == 1 and len(of_all := next(iter(families.values()))) <= len(PALETTE):
        families = {name: [name] for name in of_all}
    styles: dict[str, LineStyle] = {}
    for i, members in enumerate(families.values()):
        red, green, blue = to_rgb(PALETTE[i % 7])
        for j, name in enumerate(members):
            light = 1 - 0.65 * j / max(len(members) - 1, 1)
            color = to_hex((light * red, light * green, light * blue))
            styles[name] = LineStyle(color, MARKERS[len(styles) % 8], DASHES[(i + j) % 4])
    return styles


NAME_WIDTH = 28  # characters of a variant's name beside its bar or row

# Where no model can do better.
FLOOR_STYLE = LineStyle(TRUTH, "", (0, (4, 3)))


def new_figure(title: str, width: float, height: float) -> Figure:
    """A figure of this width and height in inches, with its title at the top left."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(textwrap.fill(title, int(width * 11)), x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def save_figure(figure: Figure, file: Path) -> None:
    """Save a figure as PNG or SVG, by the file's name, atomically. Equal figures give equal bytes."""
    with matplotlib.rc_context(STYLE), written_whole(file) as draft:
        without_date = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(draft, dpi=150, format=file.suffix[1:], metadata=without_date)


def wrapped(label: str, characters: int = 24) -> str:
    """The label in short lines; only words longer than a line are broken."""
    return textwrap.fill(label, characters, break_on_hyphens=False)


@dataclass(frozen=True)
class EndLabel:
    """A line's label, and the point (in data units) where the line ends."""

    text: str
    x: float
    y: float
    style: LineStyle


def figure_of_lines(title: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure of one pair of axes, tall enough for the labels of all lines on its right."""
    height = 1.2 + sum(0.06 + 0.16 * len(wrapped(each).splitlines()) for each in labels)
    figure = new_figure(title, 7.5, max(4.4, height))
    return figure, figure.add_subplot()


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Label the lines on the right of the axes, each as close to its line's end as the other labels allow.

    Unlike a legend, this covers no data and keeps the order of the results.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    texts = [
        axes.text(1.1, 0.5, wrapped(label.text), transform=axes.transAxes, va="center", fontsize=9) for label in labels
    ]
    figure.draw_without_rendering()  # lays out the figure, so that the axes keep their height
    heights = [text.get_window_extent().height / axes.bbox.height + 0.015 for text in texts]
    ends = axes.transAxes.inverted().transform(axes.transData.transform([(label.x, label.y) for label in labels]))
    for label, text, end, height in zip(labels, texts, ends, spread_out(ends[:, 1].tolist(), heights), strict=True):
        text.set_y(height)
        style: dict[str, Any] = {"color": label.style.color, "transform": axes.transAxes, "clip_on": False}
        axes.plot([end[0], 1.03], [np.clip(end[1], 0, 1), height], linewidth=0.6, alpha=0.7, **style)
        axes.plot([1.03, 1.055, 1.08], [height] * 3, linestyle=label.style.linestyle, **style)
        axes.plot([1.055], [height], marker=label.style.marker, **style)


def spread_out(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Centres in [0, 1] of labels of these heights that do not overlap, as close to `wanted` as possible.

    Labels that would overlap move together, each as far as the others: the least squares under an order.
    """
    order = np.argsort(wanted, kind="stable")
    sizes = np.asarray(heights)[order]
    below = np.cumsum(sizes) - sizes / 2
    groups: list[tuple[float, int]] = []  # from the lowest: where the labels stand without those below, how many
    for place in np.asarray(wanted)[order] - below:
        n = 1
        while groups and groups[-1][0] > place:
            place_below, n_below = groups.pop()
            place, n = (n * place + n_below * place_below) / (n + n_below), n + n_below
        groups.append((place, n))
    moved = np.repeat([place for place, _ in groups], [n for _, n in groups])
    centres = np.empty(len(order))
    centres[order] = np.clip(moved, 0, max(0, 1 - sizes.sum())) + below
    return [float(centre) for centre in centres]


# Numbers on axes: readable ticks, also on logarithmic axes.


def in_short(value: float, digits: int = 4) -> str:
    """A number as on a tick: 0.02, 1.5, 9640 and, from ten thousand on, with an SI prefix: 20k, 3M, 2P."""
    rounded = float(f"{value:.{digits}g}")
    return EngFormatter(sep="")(rounded) if abs(rounded) >= 1e4 else f"{rounded:.{digits if rounded % 1 else 5}g}"


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


def plain_axis(axes: Axes, which: Literal["x", "y"], *, shares: bool = False) -> None:
    """Write the ticks of a linear axis in short or, if its values are shares, in percent."""
    write = in_percent if shares else in_short
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: write(value))


def log_axis(
    axes: Axes, which: Literal["x", "y"], limits: tuple[float, float], ticks: Sequence[float] | None = None
) -> None:
    """Make an axis logarithmic, with these limits and plain numbers as ticks, not powers of ten."""
    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    at = ticks or round_ticks(*limits)
    axis.set_ticks(at, [in_short(tick, 4 if tick < 1e4 else 3) for tick in at])
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

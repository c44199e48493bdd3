"""The style of figures: palette, font sizes, and labels next to their lines."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

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

# Okabe and Ito's palette, which suits the colour-blind; grey replaces its yellow, which is too pale for a line, and
# black is reserved for floors.
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


NAME_WIDTH = 28  # characters of a variant's name beside its bar or row

# Where no model can do better.
FLOOR_STYLE = LineStyle("black", "", (0, (4, 3)))


def new_figure(title: str, width: float, height: float) -> Figure:
    """A figure of this width and height in inches, with its title at the top left."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    characters = int(width * 11)
    figure.suptitle(textwrap.fill(title, characters), x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def wrapped(label: str, characters: int = 24) -> str:
    """The label in short lines; only words longer than a line are broken."""
    return textwrap.fill(label, characters, break_on_hyphens=False)


@dataclass(frozen=True)
class Sketch:
    """A figure, its caption, and a Markdown table if it has one."""

    figure: Figure
    caption: str
    table: str = ""


@dataclass(frozen=True)
class EndLabel:
    """A line's label, and the point (in data units) where the line ends."""

    text: str
    x: float
    y: float
    style: LineStyle


def figure_of_lines(title: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """A figure of one pair of axes, tall enough for the labels of all lines on its right."""
    figure = new_figure(
        title, 7.5, max(4.4, 1.2 + sum(0.06 + 0.16 * len(wrapped(each).splitlines()) for each in labels))
    )
    return figure, figure.add_subplot()


def draw_bands(
    axes: Axes,
    lines: Mapping[str, pd.DataFrame],
    styles: Mapping[str, LineStyle] | None = None,
    *,
    most_markers: int = 25,
) -> list[EndLabel]:
    """Draw each line of `mean_lines`, with the range of its seeds as a band; returns labels for `label_ends`."""
    styles = styles or {name: line_style(i) for i, name in enumerate(lines)}
    labels = []
    for name, line in lines.items():
        style, x = styles[name], line.index
        axes.fill_between(x, line["min"], line["max"], color=style.color, alpha=0.18, linewidth=0)
        marker = style.marker if len(x) <= most_markers else ""
        axes.plot(x, line["mean"], marker=marker, color=style.color, linestyle=style.linestyle, markeredgecolor="white")
        labels.append(EndLabel(name, x[-1], line["mean"].iloc[-1], style))
    return labels


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

    Least squares under an order is isotonic regression, after moving each label down by the heights below it.
    """
    order = np.argsort(wanted, kind="stable")
    sizes = np.asarray(heights)[order]
    below = np.cumsum(sizes) - sizes / 2
    moved = isotonic_regression(np.asarray(wanted)[order] - below).x
    centres = np.empty(len(order))
    centres[order] = np.clip(moved, 0, max(0, 1 - sizes.sum())) + below
    return [float(centre) for centre in centres]

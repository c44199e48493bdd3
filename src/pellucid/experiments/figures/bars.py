"""A horizontal bar per variant: one column of results.csv, a dot for each seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pellucid.config.experiment import BarsConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short, log_limits, log_x, told_apart
from pellucid.experiments.figures.data import axis_label, floor_of, is_share, number_of, seeds_in_words
from pellucid.experiments.figures.style import FLOOR_STYLE, NAME_WIDTH, Sketch, line_style, new_figure, wrapped
from pellucid.experiments.results import RunResult, by_variant


def draw_bars(config: BarsConfig, results: Sequence[RunResult]) -> Sketch:
    """Horizontal bars leave room for long names; if the values span decades, a mark replaces each bar."""
    variants = by_variant(results)
    values = [[number_of(run, config.y) for run in runs] for runs in variants.values()]
    means = [float(np.mean(seeds)) for seeds in values]
    spans_decades = min(map(min, values)) > 0 and max(means) > 30 * min(means)
    names = [wrapped(label, NAME_WIDTH) for label in variants]
    heights_inches = [0.27 + 0.15 * len(name.splitlines()) for name in names]
    figure = new_figure(config.title, 7.5, 1.3 + sum(heights_inches))
    axes = figure.add_subplot()
    rows = np.cumsum(heights_inches) - np.array(heights_inches) / 2  # a unit of the axis is an inch

    _draw_means(axes, rows, means, values, as_bars=not spans_decades)
    texts = [f"{100 * mean:.1f} %" for mean in means] if is_share(config.y) else told_apart(means)
    for row, seeds, text in zip(rows, values, texts, strict=True):
        axes.annotate(text, (max(*seeds, 0), row), (8, 0), textcoords="offset points", va="center", size=9)
    floor_in_words = _draw_floors(axes, rows, heights_inches, config.y, list(variants.values()))

    if spans_decades:
        low, high = log_limits([value for seeds in values for value in seeds])
        log_x(axes, low, high * (high / low) ** 0.12)  # room for the numbers
    else:
        lowest, highest = min(0, *map(min, values)), max(0, *map(max, values))
        span = highest - lowest or 1.0  # if all are 0, any scale will do
        axes.set_xlim(lowest - 0.05 * span * (lowest < 0), highest + 0.15 * span)
        axes.xaxis.set_major_formatter(lambda x, _: in_percent(x) if is_share(config.y) else in_short(x))
    axes.set(xlabel=axis_label(config.y), ylim=(sum(heights_inches), 0))
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    mark = "vertical line" if spans_decades else "bar"
    words = seeds_in_words(results, mark, "and the dots are the seeds")
    return Sketch(figure, f"{axis_label(config.y)} of each variant. {words}{floor_in_words}")


def _draw_means(
    axes: Axes, rows: NDArray[np.float64], means: Sequence[float], values: Sequence[Sequence[float]], *, as_bars: bool
) -> None:
    """A bar must start at zero, which no logarithmic axis has: there a vertical line marks the mean."""
    for index, (row, mean, seeds) in enumerate(zip(rows, means, values, strict=True)):
        color = line_style(index).color
        if as_bars:
            axes.barh(row, mean, height=0.3, color=color, alpha=0.45)
        else:
            axes.plot([mean], [row], "|", color=color, markersize=20, markeredgewidth=2.5)
        beside_each_other = row + 0.06 * (np.arange(len(seeds)) - (len(seeds) - 1) / 2)
        axes.plot(seeds, beside_each_other, "o", color=color, markersize=5, markeredgecolor="white", zorder=3)


def _draw_floors(
    axes: Axes,
    rows: NDArray[np.float64],
    heights: Sequence[float],
    column: str,
    variants: Sequence[Sequence[RunResult]],
) -> str:
    """Each bar has its own floor, since the tokens of another tokenizer have another entropy. Returns caption text."""
    drawn = ""
    for row, height, runs in zip(rows, heights, variants, strict=True):
        floor = floor_of(runs[0], column)
        if floor is not None:
            axes.plot([floor] * 2, [row - height / 2, row + height / 2], color="black", linestyle=FLOOR_STYLE.linestyle)
            drawn = " The dashed line is the floor, the entropy of the text: no model can do better."
    return drawn

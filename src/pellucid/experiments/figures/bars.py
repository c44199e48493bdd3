"""Bar charts: one column of results.csv, a horizontal bar per variant and a dot per seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pellucid.config.experiment import BarsConfig
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label, floor_of, is_share, number_of
from pellucid.figures import (
    FLOOR_STYLE,
    NAME_WIDTH,
    TRUTH,
    distinct_labels,
    log_axis,
    log_limits,
    new_figure,
    plain_axis,
    styles_of,
    wrapped,
)


def draw_bars(config: BarsConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw a horizontal bar per variant; each has its own floor, as the entropy depends on the tokens.

    If values other than shares span decades, a mark replaces each bar: a bar must start at zero, which a logarithmic
    axis lacks.
    """
    y = pd.Series([number_of(run, config.y) for run in results])
    floors = pd.Series([floor_of(run, config.y) for run in results])
    variants = y.groupby(np.array([run.label for run in results]), sort=False)
    means = variants.mean()
    spans_decades = not is_share(config.y) and y.min() > 0 and means.max() > 30 * means.min()
    names = [wrapped(label, NAME_WIDTH) for label in means.index]
    heights_inches = np.array([0.27 + 0.15 * len(name.splitlines()) for name in names])
    rows = np.cumsum(heights_inches) - heights_inches / 2  # a unit of the axis is an inch
    figure = new_figure(config.title, 7.5, 1.3 + sum(heights_inches))
    axes = figure.add_subplot()

    texts = [f"{100 * mean:.1f} %" for mean in means] if is_share(config.y) else distinct_labels(list(means))
    styles = styles_of(means.index)
    for index, (name, seeds) in enumerate(variants):
        row, color = rows[index], styles[name].color
        if spans_decades:
            axes.plot(means.iloc[index], row, "|", color=color, markersize=20, markeredgewidth=2.5)
        else:
            axes.barh(row, means.iloc[index], height=0.3, color=color, alpha=0.45)
        beside_each_other = row + 0.06 * (np.arange(len(seeds)) - (len(seeds) - 1) / 2)
        axes.plot(seeds, beside_each_other, "o", color=color, markersize=5, markeredgecolor="white", zorder=3)
        axes.annotate(texts[index], (max(*seeds, 0), row), (8, 0), textcoords="offset points", va="center", size=9)
        ends = row + heights_inches[index] * np.array([-0.5, 0.5])
        axes.plot([floors[seeds.index[0]]] * 2, ends, color=TRUTH, linestyle=FLOOR_STYLE.linestyle)

    if spans_decades:
        low, high = log_limits(y)
        log_axis(axes, "x", (low, high * (high / low) ** 0.12))  # room for the numbers
    else:
        lowest, highest = min(0, y.min()), max(0, y.max())
        span = highest - lowest or 1.0  # if all are 0, any scale will do
        axes.set_xlim(lowest - 0.05 * span * (lowest < 0), highest + 0.15 * span)
        plain_axis(axes, "x", shares=is_share(config.y))
    label = config.label or axis_label(config.y)
    axes.set(xlabel=label, ylim=(sum(heights_inches), 0))
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    mark = "vertical line" if spans_decades else "bar"
    words = seeds_in_words(results, mark, "and the dots are the seeds")
    if floors.notna().any():
        words += " The dashed line is the floor, the text's own −ln p: no model can do better on average."
    return Sketch(figure, f"{label} of each variant. {words}")

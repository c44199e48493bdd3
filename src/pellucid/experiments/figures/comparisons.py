"""Figures that set finished runs side by side: bars of one column, and the table of skills."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from numpy.typing import NDArray

from pellucid.config.experiment import BarsConfig, SkillsConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short, log_limits, log_x, told_apart
from pellucid.experiments.figures.data import (
    as_sentence,
    axis_label,
    by_variant,
    floor_of,
    is_share,
    number_of,
    seeds_in_words,
    skills_label,
)
from pellucid.experiments.figures.style import FLOOR_STYLE, Sketch, line_style, new_figure, wrapped
from pellucid.experiments.results import RunResult

NAME_WIDTH = 28  # characters of a variant's name beside its bar or row


def draw_bars(config: BarsConfig, results: Sequence[RunResult]) -> Sketch:
    """One bar per variant, lying, so that long names have room; means without bars if the values span decades."""
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
        span = highest - lowest or 1.0  # where all are 0, any scale will do
        axes.set_xlim(lowest - 0.05 * span * (lowest < 0), highest + 0.15 * span)
        axes.xaxis.set_major_formatter(lambda x, _: in_percent(x) if is_share(config.y) else in_short(x))
    axes.set(xlabel=axis_label(config.y), ylim=(sum(heights_inches), 0))
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    mark = "upright line" if spans_decades else "bar"
    words = seeds_in_words(results, mark, "and the dots are the seeds")
    return Sketch(figure, f"{as_sentence(axis_label(config.y))} of each variant. {words}{floor_in_words}")


def _draw_means(
    axes: Axes, rows: NDArray[np.float64], means: Sequence[float], values: Sequence[Sequence[float]], *, as_bars: bool
) -> None:
    """A bar has to begin at zero, which no logarithmic axis has: there an upright line marks the mean."""
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
    """Each bar has its floor, as another tokenizer's tokens have another entropy. Returns the caption's words."""
    drawn = ""
    for row, height, runs in zip(rows, heights, variants, strict=True):
        floor = floor_of(runs[0], column)
        if floor is not None:
            axes.plot([floor] * 2, [row - height / 2, row + height / 2], color="black", linestyle=FLOOR_STYLE.linestyle)
            drawn = " The dashed line is the floor, the entropy of the text: no model can do better."
    return drawn


def draw_skills(config: SkillsConfig, results: Sequence[RunResult]) -> Sketch:
    """Variants by skills, a number and a colour in each cell; a skill that no run has measured is left out."""
    variants = by_variant(results)
    skills, means = _skill_means(config.y, variants)
    names = [wrapped(label, NAME_WIDTH) for label in variants]
    heights_inches = [0.2 + 0.16 * len(name.splitlines()) for name in names]
    height = max(4.2, 1.5 + sum(heights_inches))  # the words beside the scale need as much
    figure = new_figure(config.title, 3.2 + 0.75 * len(skills), height)
    axes = figure.add_subplot()
    edges = np.concatenate([[0], np.cumsum(heights_inches)])
    norm = _norm_of(config.y, means)
    image = axes.pcolormesh(np.arange(len(skills) + 1), edges, means, cmap="cividis", norm=norm, edgecolor="white")
    write = in_percent if config.y == "accuracy" else in_short
    for (row, column), mean in np.ndenumerate(means):
        red, green, blue, _ = image.cmap(norm(mean))
        is_dark = not np.isnan(mean) and 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
        axes.text(
            column + 0.5,
            (edges[row] + edges[row + 1]) / 2,
            "–" if np.isnan(mean) else write(float(f"{mean:.2g}")),
            color="white" if is_dark else "black",
            ha="center",
            va="center",
        )
    unit = skills_label(config.y)
    scale = figure.colorbar(image, ax=axes, pad=0.02, label=unit, format=lambda value, _: write(value))
    scale.ax.minorticks_off()
    axes.set_xticks(np.arange(len(skills)) + 0.5, skills)
    axes.set_yticks((edges[:-1] + edges[1:]) / 2, names)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    better = "higher" if config.y == "accuracy" else "lower"
    words = seeds_in_words(results, "number", "which the colour repeats")
    return Sketch(figure, f"{as_sentence(unit)} of each variant in each skill; {better} is better. {words}")


def _skill_means(y: str, variants: dict[str, list[RunResult]]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the skills, and the mean over seeds, variants by skills; not a number where it is unknown."""
    field = "accuracy" if y == "accuracy" else "excess_nats_per_document"
    runs = [run for of_variant in variants.values() for run in of_variant]
    skills = list(dict.fromkeys(skill for run in runs for skill in run.skills if run.skills[skill][field] is not None))
    if not skills:
        raise ValueError(f"no run has measured the {y} of a skill; only Fables knows its skills")

    def mean(of_variant: Sequence[RunResult], skill: str) -> float:
        values = [run.skills[skill][field] for run in of_variant if skill in run.skills]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else np.nan

    return skills, np.array([[mean(of_variant, skill) for skill in skills] for of_variant in variants.values()])


def _norm_of(y: str, means: NDArray[np.float64]) -> Normalize:
    """Which value has which colour: accuracy from 0 to 1, excess over up to three decades below the highest."""
    if y == "accuracy":
        return Normalize(0, 1)
    highest = float(np.nanmax(means))
    if highest <= 0:
        return Normalize(highest - 1, highest)
    lowest = max(float(np.nanmin(means)), highest / 1000)
    return LogNorm(lowest, max(highest, 1.01 * lowest), clip=True)

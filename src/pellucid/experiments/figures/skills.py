"""Variants by skills, a number and a colour in each cell: excess or accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from numpy.typing import NDArray

from pellucid.config.experiment import SkillsConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short
from pellucid.experiments.figures.data import SKILL_FIELDS, SKILL_LABELS, SkillMeasure, seeds_in_words
from pellucid.experiments.figures.style import NAME_WIDTH, Sketch, new_figure, wrapped
from pellucid.experiments.results import RunResult, by_variant


def draw_skills(config: SkillsConfig, results: Sequence[RunResult]) -> Sketch:
    """A skill that no run has measured is left out."""
    variants = by_variant(results)
    skills, means = _skill_means(config.y, variants)
    names = [wrapped(label, NAME_WIDTH) for label in variants]
    heights_inches = [0.2 + 0.16 * len(name.splitlines()) for name in names]
    height = max(4.2, 1.5 + sum(heights_inches))  # room for the label of the colour scale
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
    unit = SKILL_LABELS[config.y]
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
    return Sketch(figure, f"{unit} of each variant in each skill; {better} is better. {words}")


def _skill_means(y: SkillMeasure, variants: dict[str, list[RunResult]]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the skills, and the mean over seeds, variants by skills; NaN where it is unknown."""
    field = SKILL_FIELDS[y]
    runs = [run for of_variant in variants.values() for run in of_variant]
    skills = list(dict.fromkeys(skill for run in runs for skill in run.skills if run.skills[skill][field] is not None))
    if not skills:
        raise ValueError(f"no run has measured the {y} of a skill; only Fables knows its skills")

    def mean(of_variant: Sequence[RunResult], skill: str) -> float:
        values = [run.skills[skill][field] for run in of_variant if skill in run.skills]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else np.nan

    return skills, np.array([[mean(of_variant, skill) for skill in skills] for of_variant in variants.values()])


def _norm_of(y: SkillMeasure, means: NDArray[np.float64]) -> Normalize:
    """The colour scale: accuracy from 0 to 1, excess over at most three decades below the highest."""
    if y == "accuracy":
        return Normalize(0, 1)
    highest = float(np.nanmax(means))
    if highest <= 0:
        return Normalize(highest - 1, highest)
    lowest = max(float(np.nanmin(means)), highest / 1000)
    return LogNorm(lowest, max(highest, 1.01 * lowest), clip=True)

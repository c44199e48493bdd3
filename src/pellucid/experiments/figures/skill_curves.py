"""When each skill is learned: a panel per variant, a line per skill."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.lines import Line2D

from pellucid.config.experiment import SkillCurvesConfig
from pellucid.experiments.figures.axis_numbers import in_percent, log_limits, log_x, log_y, round_ticks
from pellucid.experiments.figures.data import (
    SKILL_FIELDS,
    SKILL_LABELS,
    Band,
    Points,
    SkillMeasure,
    band,
    seeds_in_words,
)
from pellucid.experiments.figures.style import Sketch, line_style, new_figure, plot_band, wrapped
from pellucid.experiments.results import RunResult, by_variant


def draw_skill_curves(config: SkillCurvesConfig, results: Sequence[RunResult]) -> Sketch:
    variants = by_variant(results)
    bands = {label: _skill_bands(config.y, runs) for label, runs in variants.items()}
    skills = list(dict.fromkeys(skill for of_variant in bands.values() for skill in of_variant))
    if not skills:
        raise ValueError(f"no run has the {config.y} of skills while training; only Fables knows its skills")
    n_columns = min(3, len(variants))
    n_rows = -(-len(variants) // n_columns)
    figure = new_figure(config.title, 1.5 + (5.6, 3.6, 2.8)[n_columns - 1] * n_columns, 1.2 + 2.6 * n_rows)
    panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    for axes, (label, of_variant) in zip(panels.flat, bands.items(), strict=False):
        axes.set_title(wrapped(label, 34), loc="left")
        for skill, line in of_variant.items():
            plot_band(axes, line, line_style(skills.index(skill)), markers=len(line.x) <= 12)
    for axes in panels.flat[len(variants) :]:
        axes.remove()
    for axes in panels.flat[len(variants) - n_columns : len(variants)]:
        axes.tick_params(labelbottom=True)  # no panel is below it

    lines = [line for of_variant in bands.values() for line in of_variant.values()]
    low, high = log_limits(np.concatenate([line.x for line in lines]))
    log_x(panels[0, 0], low, high, round_ticks(low, high, most=4))
    if config.y == "excess":
        log_y(panels[0, 0], *log_limits(np.concatenate([line.mean for line in lines])))
    else:
        panels[0, 0].set_ylim(-0.02, 1.02)
        panels[0, 0].yaxis.set_major_formatter(lambda value, _: in_percent(value))
    words = SKILL_LABELS[config.y]
    figure.supxlabel("training tokens", fontsize=10)
    figure.supylabel(words, fontsize=10)
    handles = [_key(index, skill) for index, skill in enumerate(skills)]
    figure.legend(handles=handles, loc="outside right upper", title="skill", handlelength=3)
    return Sketch(
        figure,
        f"{words} of each skill against training tokens, a panel per variant. {seeds_in_words(results)}",
    )


def _key(index: int, name: str) -> Line2D:
    style = line_style(index)
    return Line2D([], [], color=style.color, marker=style.marker, linestyle=style.linestyle, label=name)


def _skill_bands(y: SkillMeasure, runs: Sequence[RunResult]) -> dict[str, Band]:
    """One line per skill that all these runs measured during training."""
    field = SKILL_FIELDS[y]
    points: list[dict[str, Points]] = []
    for run in runs:
        of_run: dict[str, Points] = {}
        for row in run.curve:
            for skill, values in (row.get("skills") or {}).items():
                if values[field] is not None:
                    of_run.setdefault(skill, []).append((row["tokens"], values[field]))
        points.append(of_run)
    return {
        skill: band([of_run[skill] for of_run in points]) for skill in points[0] if all(skill in of for of in points)
    }

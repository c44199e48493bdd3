"""Figures of lines over seeds: how loss and skills changed in training, other context lengths, gradients by depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pellucid.config.experiment import ContextsConfig, CurvesConfig, GradientNormsConfig, SkillCurvesConfig
from pellucid.experiments.figures.axis_numbers import (
    in_percent,
    in_short,
    log_limits,
    log_x,
    log_y,
    round_ticks,
    ticks_at,
)
from pellucid.experiments.figures.data import (
    Band,
    as_sentence,
    axis_label,
    band,
    by_variant,
    seeds_in_words,
    skills_label,
)
from pellucid.experiments.figures.style import (
    FLOOR_STYLE,
    EndLabel,
    Sketch,
    inches_of_labels,
    label_ends,
    line_style,
    new_figure,
    plot_band,
    wrapped,
)
from pellucid.experiments.results import Row, RunResult

RANGE = "and the band is their range"
Points = list[tuple[float, float]]


def draw_curves(config: CurvesConfig, results: Sequence[RunResult]) -> Sketch:
    """How validation loss, or its excess over the floor, fell in training: a line per variant."""
    bands = _bands(results, lambda run: _loss_points(config, run))
    figure, axes = _figure_for(config.title, [*bands, "floor"])
    labels = _draw_bands(axes, bands)
    y = np.concatenate([line.mean for line in bands.values()])
    x = np.concatenate([line.x for line in bands.values()])
    floor_in_words = ""
    if config.y == "excess":
        log_x(axes, *log_limits(x))
        log_y(axes, *log_limits(y))
    else:
        lines_of_floor = _floors(config, results)
        floors = [floor for points in lines_of_floor for _, floor in points]
        for points in lines_of_floor:
            axes.plot(*zip(*points, strict=True), color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
            labels.append(EndLabel(f"floor: {points[-1][1]:.3f}", *points[-1], FLOOR_STYLE))
            floor_in_words = " The dashed line is the floor of the text of each evaluation: no model can do better."
        # A wild start must not squeeze the rest: 7 nats are an even guess among a thousand tokens.
        log_y(axes, *log_limits([*floors, *np.minimum(y, max(7.0, 3 * min(y)))]))
        axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    x_label = {"tokens": "training tokens", "step": "training step", "flops": axis_label("flops")}[config.x]
    axes.set(xlabel=x_label, ylabel=axis_label(config.y))
    label_ends(axes, labels)
    scales = ", on logarithmic axes" if config.y == "excess" else ""
    return Sketch(
        figure,
        f"{as_sentence(axis_label(config.y))} against {x_label}{scales}. "
        f"{seeds_in_words(results, 'line', RANGE)}{floor_in_words}",
    )


def _floors(config: CurvesConfig, results: Sequence[RunResult]) -> list[Points]:
    """The floors of the evaluations, once where runs read the same text. The last evaluation reads more text."""
    floors = {}
    for run in results:
        rows = [row for row in run.curve if row.get("val_floor") is not None]
        if rows:
            points = [(_x(config, run, row), row["val_floor"]) for row in rows]
            floors[tuple(round(floor, 3) for _, floor in points)] = points
    return list(floors.values())


def _x(config: CurvesConfig, run: RunResult, row: Row) -> float:
    """FLOPs are spent evenly over the tokens."""
    return float(row["tokens"] * run.flops / run.tokens if config.x == "flops" else row[config.x])


def _loss_points(config: CurvesConfig, run: RunResult) -> Points:
    """(x, y) of each evaluation."""
    points = []
    for row in run.curve:
        floor = 0.0 if config.y == "val_loss" else row.get("val_floor")
        if row.get("val_loss") is not None and floor is not None:
            points.append((_x(config, run, row), row["val_loss"] - floor))
    if not points:
        raise ValueError(
            f"run {run.label!r} (seed {run.seed}) has no {config.y} while training; "
            "shorten evaluation.every_steps, or, where no floor is known, draw val_loss"
        )
    return points


def draw_skill_curves(config: SkillCurvesConfig, results: Sequence[RunResult]) -> Sketch:
    """When each skill is learned: a panel per variant, a line per skill."""
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
        axes.tick_params(labelbottom=True)  # nothing stands below it

    lines = [line for of_variant in bands.values() for line in of_variant.values()]
    low, high = log_limits(np.concatenate([line.x for line in lines]))
    log_x(panels[0, 0], low, high, round_ticks(low, high, most=4))
    if config.y == "excess":
        log_y(panels[0, 0], *log_limits(np.concatenate([line.mean for line in lines])))
    else:
        panels[0, 0].set_ylim(-0.02, 1.02)
        panels[0, 0].yaxis.set_major_formatter(lambda value, _: in_percent(value))
    words = skills_label(config.y)
    figure.supxlabel("training tokens", fontsize=10)
    figure.supylabel(words, fontsize=10)
    handles = [_key(index, skill) for index, skill in enumerate(skills)]
    figure.legend(handles=handles, loc="outside right upper", title="skill", handlelength=3)
    return Sketch(
        figure,
        f"{as_sentence(words)} of each skill against training tokens, a panel per variant. "
        f"{seeds_in_words(results, 'line', RANGE)}",
    )


def _key(index: int, name: str) -> Line2D:
    style = line_style(index)
    return Line2D([], [], color=style.color, marker=style.marker, linestyle=style.linestyle, label=name)


def _skill_bands(y: str, runs: Sequence[RunResult]) -> dict[str, Band]:
    """One line per skill that all these runs have measured while training."""
    field = "accuracy" if y == "accuracy" else "excess_nats_per_document"
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


def draw_contexts(config: ContextsConfig, results: Sequence[RunResult]) -> Sketch:
    """Loss, or its excess where the floor is known, when the trained models read other context lengths."""
    if not any(run.contexts for run in results):
        raise ValueError("no run was evaluated at other context lengths; list them in measures.contexts")
    bands = _bands([run for run in results if run.contexts], lambda run: [(float(x), y) for x, y in run.contexts])
    knows_floor = all(run.floor is not None for run in results)
    if not knows_floor and any(run.floor is not None for run in results):
        raise ValueError("some runs know their floor and some do not: their excess and loss do not share an axis")
    figure, axes = _figure_for(config.title, list(bands))
    labels = _draw_bands(axes, bands)
    x = sorted({float(length) for line in bands.values() for length in line.x})
    log_x(axes, *log_limits(x), ticks_at(np.log(x)) and x)
    y = np.concatenate([line.mean for line in bands.values()])
    if min(y) > 0 and max(y) > 10 * min(y):
        log_y(axes, *log_limits(y))
    y_label = axis_label("excess" if knows_floor else "val_loss")
    axes.set(xlabel="context length in evaluation (tokens)", ylabel=y_label)
    label_ends(axes, labels)
    return Sketch(
        figure,
        f"{as_sentence(y_label)} of each trained variant at several context lengths. "
        f"{seeds_in_words(results, 'line', RANGE)}",
    )


def draw_gradient_norms(config: GradientNormsConfig, results: Sequence[RunResult]) -> Sketch:
    """The gradient's norm in each block at the first step: does every depth get its share?"""
    if not any(run.gradient_norms for run in results):
        raise ValueError("no run measured gradients by depth; set measures.gradient_norms: true")
    measured = [run for run in results if run.gradient_norms]
    bands = _bands(measured, lambda run: [(float(block), norm) for block, norm in enumerate(run.gradient_norms, 1)])
    figure, axes = _figure_for(config.title, list(bands))
    labels = _draw_bands(axes, bands)
    log_y(axes, *log_limits(np.concatenate([line.mean for line in bands.values()])))
    if at := ticks_at(np.concatenate([line.x for line in bands.values()])):
        axes.set_xticks(at)
    axes.set(xlabel="block (1 reads the embeddings)", ylabel="norm of the gradient at the first step")
    label_ends(axes, labels)
    return Sketch(
        figure,
        "Norm of the gradient in each block at the first step, on a logarithmic axis. "
        f"{seeds_in_words(results, 'line', RANGE)}",
    )


def _bands(results: Sequence[RunResult], points_of: Callable[[RunResult], Points]) -> dict[str, Band]:
    return {label: band([points_of(run) for run in runs]) for label, runs in by_variant(results).items()}


def _figure_for(title: str, labels: Sequence[str]) -> tuple[Figure, Axes]:
    """One pair of axes, high enough for the names of all lines at its right."""
    figure = new_figure(title, 7.5, max(4.4, 1.2 + inches_of_labels(labels)))
    return figure, figure.add_subplot()


def _draw_bands(axes: Axes, bands: dict[str, Band]) -> list[EndLabel]:
    labels = []
    for index, (name, line) in enumerate(bands.items()):
        plot_band(axes, line, line_style(index), markers=len(line.x) <= 25)
        labels.append(EndLabel(name, line.x[-1], line.mean[-1], line_style(index)))
    return labels

"""How validation loss, or its excess over the floor, fell in training: a line per variant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.config.experiment import CurvesConfig
from pellucid.experiments.figures.axis_numbers import in_short, log_limits, log_x, log_y
from pellucid.experiments.figures.data import Points, axis_label, bands_of, seeds_in_words
from pellucid.experiments.figures.style import FLOOR_STYLE, EndLabel, Sketch, draw_bands, figure_of_lines, label_ends
from pellucid.experiments.results import Row, RunResult


def draw_curves(config: CurvesConfig, results: Sequence[RunResult]) -> Sketch:
    bands = bands_of(results, lambda run: _loss_points(config, run))
    figure, axes = figure_of_lines(config.title, [*bands, "floor"])
    labels = draw_bands(axes, bands)
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
        # A wild start must not squeeze the rest: 7 nats is a uniform guess among a thousand tokens.
        log_y(axes, *log_limits([*floors, *np.minimum(y, max(7.0, 3 * min(y)))]))
        axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    x_label = {"tokens": "training tokens", "step": "training step", "flops": axis_label("flops")}[config.x]
    axes.set(xlabel=x_label, ylabel=axis_label(config.y))
    label_ends(axes, labels)
    scales = ", on logarithmic axes" if config.y == "excess" else ""
    return Sketch(
        figure,
        f"{axis_label(config.y)} against {x_label}{scales}. {seeds_in_words(results)}{floor_in_words}",
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

"""Line charts of loss or rewards during training, a line per variant."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pellucid.config.experiment import CurvesConfig
from pellucid.experiments.figures.means import Sketch, at_equal_steps, draw_means, seeds_in_words
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label, is_share
from pellucid.figures import DASHES, FLOOR_STYLE, TRUTH, EndLabel, label_ends, log_axis, log_limits, plain_axis


def draw_curves(
    config: CurvesConfig, results: Sequence[RunResult], levels: Mapping[str, float] | None = None
) -> Sketch:
    """Draw the validation loss, its excess over the floor, or the rewards of answers during training.

    levels: strategies whose excess is known, by name, to draw beside the excess.
    """
    points = _evaluations(config, results)
    y_column = config.y if config.y in ("val_loss", "excess") else f"answers.{config.y}"
    known = levels or {}
    figure, axes, labels, means = draw_means(config.title, points, "floor", *known)
    floor_in_words = ""
    if config.y == "excess":
        log_axis(axes, "x", log_limits(means.index))
        log_axis(axes, "y", log_limits([*means, *known.values()]))
        for (strategy, y), dashes in zip(known.items(), DASHES[1:], strict=False):
            axes.axhline(y, color=TRUTH, linestyle=dashes, linewidth=1.1, zorder=1.5)
            labels.append(EndLabel(strategy, means.index.max(), y, replace(FLOOR_STYLE, linestyle=dashes)))
        floor_in_words = " Black: strategies whose excess is known." if known else ""
    elif config.y == "val_loss":
        # One floor for all runs that read the same text. The last evaluation reads more text than those before it.
        with_floor = points.dropna().groupby(["label", "seed"], sort=False)
        for floor in {tuple(run.floor.round(3)): run for _, run in with_floor}.values():
            axes.plot(floor.x, floor.floor, color=TRUTH, linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
            x, y = floor[["x", "floor"]].iloc[-1]
            labels.append(EndLabel(f"floor: {y:.3f}", x, y, FLOOR_STYLE))
            floor_in_words = " The dashed line is the floor of the text of each evaluation: no model can do better."
        # A wild start must not squeeze the rest: 7 nats is a uniform guess among a thousand tokens.
        log_axis(axes, "y", log_limits([*points.floor, *np.minimum(means, max(7.0, 3 * min(means)))]))
        plain_axis(axes, "x")
    else:
        plain_axis(axes, "x")
        plain_axis(axes, "y", shares=is_share(y_column))
    x_label = {"tokens": "training tokens", "step": "training step", "flops": axis_label("flops")}[config.x]
    axes.set(xlabel=x_label, ylabel=axis_label(y_column))
    label_ends(axes, labels)
    scales = ", on logarithmic axes" if config.y == "excess" else ""
    words = f"{axis_label(y_column)} against {x_label}{scales}. {seeds_in_words(results)}{floor_in_words}"
    return Sketch(figure, words)


def _evaluations(config: CurvesConfig, results: Sequence[RunResult]) -> pd.DataFrame:
    """A table of every evaluation in training: label, seed, step, x, floor, y. FLOPs are proportional to tokens."""
    rows, key = [], "val_loss" if config.y == "excess" else f"val_{config.y.removeprefix('val_')}"
    for run in results:
        unit = run.flops / run.tokens if config.x == "flops" else 1
        counter = "step" if config.x == "step" else "tokens"
        of_run = [
            (run.label, run.seed, row["step"], unit * row[counter], floor, row[key])
            for row in run.curve
            if key in row and ((floor := row.get("val_floor")) is not None or config.y != "excess")
        ]
        if not of_run:
            what = f"run {run.label!r} (seed {run.seed}) has no {config.y} while training"
            raise ValueError(f"{what}; shorten evaluation.every_steps, or, where no floor is known, draw val_loss")
        rows += of_run
    columns = ["label", "seed", "step", "x", "floor", "y"]
    points = at_equal_steps(pd.DataFrame(rows, columns=columns).astype({"x": float, "floor": float}), "label")
    points = _with_level_lines(points) if config.x == "flops" else points
    return points.assign(y=points.y - points.floor) if config.y == "excess" else points


def _with_level_lines(points: pd.DataFrame) -> pd.DataFrame:
    """The points with level lines for models without FLOPs, such as a table of counts: their last loss."""
    free, others = points[points.x == 0], points[points.x > 0]
    if free.empty:
        return points
    last = free.groupby(["label", "seed"], sort=False).tail(1)
    return pd.concat([*(last.assign(x=x) for x in (others.x.min(), others.x.max())), others], ignore_index=True)

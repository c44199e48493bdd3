"""Line charts, a line per variant: loss in training, loss at other context lengths, first gradients."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pellucid.config.experiment import ContextsConfig, CurvesConfig, GradientNormsConfig, PlacesConfig, TextsConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short, log_axis, log_limits, ticks_at
from pellucid.experiments.figures.style import (
    DASHES,
    FLOOR_STYLE,
    EndLabel,
    Sketch,
    draw_bands,
    figure_of_lines,
    label_ends,
    wrapped,
)
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import at_equal_steps, axis_label, is_share, mean_lines, number_of, seeds_in_words


def draw_curves(config: CurvesConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the validation loss, its excess over the floor, or the rewards of answers during training."""
    points = _evaluations(config, results)
    y_column = config.y if config.y in ("val_loss", "excess") else f"answers.{config.y}"
    known = _excess_of_strategies(results[0]) if config.y == "excess" else {}
    figure, axes, labels, means = _draw_means(config.title, points, "floor", *known)
    floor_in_words = ""
    if config.y == "excess":
        log_axis(axes, "x", log_limits(means.index))
        log_axis(axes, "y", log_limits([*means, *known.values()]))
        for (strategy, y), dashes in zip(known.items(), DASHES[1:], strict=False):
            axes.axhline(y, color="black", linestyle=dashes, linewidth=1.1, zorder=1.5)
            labels.append(EndLabel(strategy, means.index.max(), y, replace(FLOOR_STYLE, linestyle=dashes)))
        floor_in_words = " Black: strategies whose excess is known." if known else ""
    elif config.y == "val_loss":
        # One floor for all runs that read the same text. The last evaluation reads more text than those before it.
        with_floor = points.dropna().groupby(["label", "seed"], sort=False)
        for floor in {tuple(run.floor.round(3)): run for _, run in with_floor}.values():
            axes.plot(floor.x, floor.floor, color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
            x, y = floor[["x", "floor"]].iloc[-1]
            labels.append(EndLabel(f"floor: {y:.3f}", x, y, FLOOR_STYLE))
            floor_in_words = " The dashed line is the floor of the text of each evaluation: no model can do better."
        # A wild start must not squeeze the rest: 7 nats is a uniform guess among a thousand tokens.
        log_axis(axes, "y", log_limits([*points.floor, *np.minimum(means, max(7.0, 3 * min(means)))]))
        axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    else:
        axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
        axes.yaxis.set_major_formatter(lambda value, _: in_percent(value) if is_share(y_column) else in_short(value))
    x_label = {"tokens": "training tokens", "step": "training step", "flops": axis_label("flops")}[config.x]
    axes.set(xlabel=x_label, ylabel=axis_label(y_column))
    label_ends(axes, labels)
    scales = ", on logarithmic axes" if config.y == "excess" else ""
    words = f"{axis_label(y_column)} against {x_label}{scales}. {seeds_in_words(results)}{floor_in_words}"
    return Sketch(figure, words)


def _excess_of_strategies(run: RunResult) -> dict[str, float]:
    """The excess of each strategy whose loss at each place is known, in nats per token of the held-out documents.

    A token that ends a document costs none of them anything, so that all losses are in the ratio of their sums.
    """
    strategies = {who: sum(nats) for who, nats in run.places.items() if who not in ("model", "truth")}
    if not strategies or run.floor is None:
        return {}
    return {who: run.floor * (nats / sum(run.places["truth"]) - 1) for who, nats in strategies.items()}


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
            raise ValueError(
                f"run {run.label!r} (seed {run.seed}) has no {config.y} while training; "
                "shorten evaluation.every_steps, or, where no floor is known, draw val_loss"
            )
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


def draw_contexts(config: ContextsConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the loss, or its excess where the floor is known, of trained models at other context lengths."""
    points = [(run.label, run.seed, x, y) for run in results for x, y in run.contexts]
    if not points:
        raise ValueError("no run was evaluated at other context lengths; list them in measures.contexts")
    knows_floor = {run.floor is not None for run in results}
    if len(knows_floor) > 1:
        raise ValueError("some runs know their floor and some do not: their excess and loss do not share an axis")
    figure, axes, labels, means = _draw_means(config.title, pd.DataFrame(points, columns=["label", "seed", "x", "y"]))
    x = sorted(set(means.index))
    log_axis(axes, "x", log_limits(x), ticks_at(np.log(x)) and x)
    if means.min() > 0 and means.max() > 10 * means.min():
        log_axis(axes, "y", log_limits(means))
    y_label = axis_label("excess" if knows_floor == {True} else "val_loss")
    axes.set(xlabel="context length in evaluation (tokens)", ylabel=y_label)
    label_ends(axes, labels)
    return Sketch(figure, f"{y_label} of each trained variant at several context lengths. {seeds_in_words(results)}")


def draw_places(config: PlacesConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the mean loss at each place of a document, beside the floor and strategies that are known."""
    points = [(run.label, run.seed, x, y) for run in results for x, y in enumerate(run.places.get("model", []), 1)]
    if not points:
        raise ValueError("no run measured the loss at each place; set measures.places: true")
    known = {who: nats for who, nats in results[0].places.items() if who != "model"}
    points_of_models = pd.DataFrame(points, columns=["label", "seed", "x", "y"])
    figure, axes, labels, _ = _draw_means(config.title, points_of_models, *known)
    for (who, nats), dashes in zip(known.items(), DASHES[1:], strict=False):
        style = replace(FLOOR_STYLE, linestyle=dashes)
        axes.plot(np.arange(1, len(nats) + 1), nats, color="black", linestyle=dashes, linewidth=1.1, zorder=3)
        labels.append(EndLabel(who, len(nats), nats[-1], style))
    axes.set(xlabel="place in the document (1 is its first token)", ylabel="loss (nats per token)")
    label_ends(axes, labels)
    words = "Mean loss at each place of the held-out documents. Black: the truth, and strategies whose loss is known."
    return Sketch(figure, f"{words} {seeds_in_words(results)}")


def draw_texts(config: TextsConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw how often a skill is right on each of the other texts, in their order."""
    texts, column = list(dict.fromkeys(text for run in results for text in run.texts)), f"accuracy.{config.skill}"
    if not texts:
        raise ValueError("no run was scored on other texts; list them in measures.texts")
    points = [
        (run.label, run.seed, texts.index(text), number_of(run, f"{column}@{text}"))
        for run in results
        for text in run.texts
    ]
    figure, axes, labels, _ = _draw_means(config.title, pd.DataFrame(points, columns=["label", "seed", "x", "y"]))
    axes.set_xticks(range(len(texts)), [wrapped(text, max(8, 60 // len(texts))) for text in texts])
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: in_percent(value))
    axes.set(xlabel="texts", ylabel=axis_label(column))
    label_ends(axes, labels)
    return Sketch(figure, f"{axis_label(column)}, of each variant on several texts. {seeds_in_words(results)}")


def draw_gradient_norms(config: GradientNormsConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the norm of the gradient in each block at the first step."""
    points = [(run.label, run.seed, x, y) for run in results for x, y in enumerate(run.gradient_norms, 1)]
    if not points:
        raise ValueError("no run measured gradients by depth; set measures.gradient_norms: true")
    figure, axes, labels, means = _draw_means(config.title, pd.DataFrame(points, columns=["label", "seed", "x", "y"]))
    log_axis(axes, "y", log_limits(means))
    if at := ticks_at(means.index):
        axes.set_xticks(at)
    axes.set(xlabel="block (1 reads the embeddings)", ylabel="norm of the gradient at the first step")
    label_ends(axes, labels)
    words = "Norm of the gradient in each block at the first step, on a logarithmic axis."
    return Sketch(figure, f"{words} {seeds_in_words(results)}")


def _draw_means(title: str, points: pd.DataFrame, *more_labels: str) -> tuple[Figure, Axes, list[EndLabel], pd.Series]:
    """Draw the mean lines of the points on new axes; returns their labels and all means too."""
    lines = mean_lines(points)
    figure, axes = figure_of_lines(title, [*lines, *more_labels])
    return figure, axes, draw_bands(axes, lines), pd.concat([line["mean"] for line in lines.values()])

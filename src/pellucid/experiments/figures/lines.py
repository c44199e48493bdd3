"""Line charts of one column of the results against another, or against a key that the experiment varied."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pellucid.config.experiment import LinesConfig
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label, floor_of, in_words, is_share, number_of, numbers_of, value_of
from pellucid.figures import (
    FLOOR_STYLE,
    TRUTH,
    EndLabel,
    figure_of_lines,
    in_short,
    label_ends,
    log_axis,
    log_limits,
    plain_axis,
    styles_of,
    ticks_at,
    wrapped,
)


def draw_lines(config: LinesConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw each run as a dot, with lines through the means of runs with equal x or, if x is measured, of each variant.

    If x is measured and there is no `by`, each variant has its own marker and name: they have no order, and no line.
    """
    runs, words = _runs(config, results)
    key = "label" if any(config.x in numbers_of(run) for run in results) else "x"  # a measured x differs between seeds
    lines = dict(iter(runs.groupby("line", sort=False)))
    names_variants = key == "label" and config.by is None
    named = dict(iter(runs.groupby("label", sort=False))) if names_variants else lines
    figure, axes = figure_of_lines(config.title, [*named, "floor"])

    labels, styles = [], styles_of(named)
    for name, of_line in named.items():
        (x, y), style = _means(of_line, key), styles[name]
        if names_variants:
            style = replace(style, linestyle="")
        else:
            axes.plot(x, y, color=style.color, linestyle=style.linestyle, zorder=2)
        axes.plot(of_line.x, of_line.y, "o", color=style.color, alpha=0.4, markersize=4, markeredgewidth=0)
        axes.plot(x, y, style.marker, color=style.color, markersize=6.5, markeredgecolor="white", zorder=3)
        if name:
            labels.append(EndLabel(name, x.iloc[-1], y.iloc[-1], style))
    labels += _draw_floors(axes, lines)
    _scale_axes(axes, config, runs, words)
    if labels:
        label_ends(axes, labels)
    by = f", a line for each {axis_label(config.by)}" if config.by else ""
    floor = " The dashed line is the floor: no model can do better." if pd.notna(runs.floor[0]) else ""
    return Sketch(
        figure,
        f"{axis_label(config.y)} against {axis_label(config.x)}{by}. "
        f"Each small dot is one run, and {'large marks are' if names_variants else 'lines join'} their means.{floor}",
    )


def _runs(config: LinesConfig, results: Sequence[RunResult]) -> tuple[pd.DataFrame, list[str]]:
    """A table of label, x, y, floor and line of each run; and the values of x, if they are words.

    Words get x = 0, 1, … in order of first appearance. Lines of numbers are in rising order.
    """
    rows = [(run.label, value_of(run, config.x), number_of(run, config.y), floor_of(run, config.y)) for run in results]
    runs = pd.DataFrame(rows, columns=["label", "x", "y", "floor"])
    words = pd.Index([])
    if _has_words(runs.x):
        runs["x"], words = pd.factorize(runs.x.map(_word))
    if config.by is None:
        return runs.assign(line=""), list(words)
    if config.by == "label":
        by = pd.Series([run.label.rpartition(",")[0] or run.label for run in results])
    else:
        by = pd.Series([value_of(run, config.by) for run in results])
    runs["line"] = by.map(_word)
    if not _has_words(by):
        runs["line"] = [in_words(f"{config.by.rsplit('.', 1)[-1]}={value}") for value in runs.line]
        runs = runs.iloc[by.argsort(kind="stable")]
    return runs, list(words)


def _has_words(values: pd.Series) -> bool:
    return any(isinstance(value, str) for value in values)


def _word(value: float | str) -> str:
    return value if isinstance(value, str) else in_short(value)


def _means(runs: pd.DataFrame, key: str) -> tuple[pd.Series, pd.Series]:
    """The means of x and y over the runs with the same key, in rising order of x."""
    means = runs.groupby(key)[["x", "y"]].mean().rename_axis("together").sort_values(["x", "y"])
    return means.x, means.y


def _draw_floors(axes: Axes, lines: Mapping[str, pd.DataFrame]) -> list[EndLabel]:
    """Draw the floor below each line, once for lines with the same floor; returns their labels."""
    floors: dict[tuple[tuple[float, float], ...], str] = {}
    for name, runs in lines.items():
        if line := {(x, round(floor, 4)) for x, floor in zip(runs.x, runs.floor, strict=True) if pd.notna(floor)}:
            floors.setdefault(tuple(sorted(line)), name)
    if len({y for points in floors for _, y in points}) == 1:
        floor = next(iter(floors))[0][1]
        axes.axhline(floor, color=TRUTH, linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
        return [EndLabel(f"floor: {floor:.3f}", axes.get_xlim()[1], floor, FLOOR_STYLE)]
    for points in floors:
        axes.plot(*zip(*points, strict=True), color=TRUTH, linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
    return [
        EndLabel(f"floor of {name}" if len(floors) > 1 else "floor", *points[-1], FLOOR_STYLE)
        for points, name in floors.items()
    ]


def _scale_axes(axes: Axes, config: LinesConfig, runs: pd.DataFrame, words: list[str]) -> None:
    if words and config.log_x:
        raise ValueError(f"{config.x} has values in words, which no logarithmic axis takes; leave log_x out")
    if words:
        axes.set_xticks(range(len(words)), [wrapped(word, max(8, 60 // len(words))) for word in words])
        axes.set_xlim(-0.4, len(words) - 0.6)
    elif config.log_x:
        x = runs.x[runs.x > 0]  # a table of counts takes no FLOPs
        log_axis(axes, "x", log_limits(x), ticks_at(np.log(x)) and sorted(set(x)))
    else:
        plain_axis(axes, "x")
        if at := ticks_at(runs.x):
            axes.set_xticks(at)
    if config.log_y:
        if runs.y.min() <= 0:
            raise ValueError(f"{config.y} falls to {runs.y.min():g}, which no logarithmic axis takes; leave log_y out")
        log_axis(axes, "y", log_limits([*runs.y, *runs.floor]))
    else:
        plain_axis(axes, "y", shares=is_share(config.y))
    axes.set(xlabel=axis_label(config.x), ylabel=axis_label(config.y))

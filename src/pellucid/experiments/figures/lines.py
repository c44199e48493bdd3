"""One column of the results against another, or against a key that the experiment varied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from pellucid.config.experiment import LinesConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short, log_limits, log_x, log_y, ticks_at
from pellucid.experiments.figures.data import (
    Band,
    axis_label,
    floor_of,
    is_measured,
    is_share,
    number_of,
    value_of,
)
from pellucid.experiments.figures.style import (
    FLOOR_STYLE,
    EndLabel,
    LineStyle,
    Sketch,
    figure_of_lines,
    label_ends,
    line_style,
    wrapped,
)
from pellucid.experiments.results import RunResult, by_variant

Position = Callable[[RunResult], float]  # where on the x axis a run stands


def draw_lines(config: LinesConfig, results: Sequence[RunResult]) -> Sketch:
    """Each run is a dot; lines join the means of runs with equal x or, if x is measured, of each variant.

    If x is measured and there is no `by`, each variant has its own marker and name.
    """
    lines = _lines(config.by, results)
    names_variants = is_measured(config.x) and config.by is None
    named = by_variant(results) if names_variants else lines
    figure, axes = figure_of_lines(config.title, [*named, "floor"])
    words = _words(config.x, results)
    position = _position(config.x, words)

    labels = []
    if names_variants:
        means = _means(config, results, position)
        axes.plot(means.x, means.mean, color="#bbbbbb", zorder=2)
    for index, (name, runs) in enumerate(named.items()):
        means, style = _means(config, runs, position), line_style(index)
        if names_variants:
            style = replace(style, linestyle="")
        else:
            axes.plot(means.x, means.mean, color=style.color, linestyle=style.linestyle, zorder=2)
        _draw_runs(axes, config.y, runs, position, means, style)
        if name:
            labels.append(EndLabel(name, means.x[-1], means.mean[-1], style))
    labels += _draw_floors(axes, config, lines, position)

    _scale_axes(axes, config, results, words, position)
    if labels:
        label_ends(axes, labels)
    by = f", a line for each {config.by}" if config.by else ""
    floor = " The dashed line is the floor: no model can do better." if floor_of(results[0], config.y) else ""
    return Sketch(
        figure,
        f"{axis_label(config.y)} against {axis_label(config.x)}{by}. "
        f"Each small dot is one run, and lines join their means.{floor}",
    )


def _lines(by: str | None, results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The runs of each line, by the line's name; numbers in rising order."""
    if by is None:
        return {"": list(results)}
    values = {value_of(run, by) for run in results}
    if not any(isinstance(value, str) for value in values):
        key = by.rsplit(".", 1)[-1]
        numbers = sorted(number for number in values if not isinstance(number, str))
        return {f"{key} = {in_short(at)}": [run for run in results if value_of(run, by) == at] for at in numbers}
    lines: dict[str, list[RunResult]] = {}
    for run in results:
        lines.setdefault(_word(run, by), []).append(run)
    return lines


def _words(x: str, results: Sequence[RunResult]) -> list[str]:
    """The values of x that are words, in order of first appearance; none if all are numbers."""
    if all(isinstance(value_of(run, x), float) for run in results):
        return []
    return list(dict.fromkeys(_word(run, x) for run in results))


def _word(run: RunResult, column: str) -> str:
    value = value_of(run, column)
    return value if isinstance(value, str) else in_short(value)


def _position(x: str, words: list[str]) -> Position:
    return (lambda run: float(words.index(_word(run, x)))) if words else (lambda run: number_of(run, x))


def _means(config: LinesConfig, runs: Sequence[RunResult], position: Position) -> Band:
    """Mean and range of y at each x, in rising order of x."""
    together: dict[str | float, list[RunResult]] = {}
    for run in runs:
        together.setdefault(run.label if is_measured(config.x) else position(run), []).append(run)
    points = []
    for group in together.values():
        ys = [number_of(run, config.y) for run in group]
        points.append((float(np.mean([position(run) for run in group])), float(np.mean(ys)), min(ys), max(ys)))
    x, mean, low, high = np.array(sorted(points)).T
    return Band(x, mean, low, high)


def _draw_runs(
    axes: Axes, y: str, runs: Sequence[RunResult], position: Position, means: Band, style: LineStyle
) -> None:
    """Each run a small pale dot, each mean a marker."""
    points = [(position(run), number_of(run, y)) for run in runs]
    axes.plot(*zip(*points, strict=True), "o", color=style.color, alpha=0.4, markersize=4, markeredgewidth=0)
    axes.plot(means.x, means.mean, style.marker, color=style.color, markersize=6.5, markeredgecolor="white", zorder=3)


def _draw_floors(
    axes: Axes, config: LinesConfig, lines: dict[str, list[RunResult]], position: Position
) -> list[EndLabel]:
    """The floor below each line; lines of the same floor share one."""
    floors: dict[tuple[tuple[float, float], ...], str] = {}
    for name, runs in lines.items():
        known = {(position(run), round(floor, 4)) for run in runs if (floor := floor_of(run, config.y)) is not None}
        if known:
            floors.setdefault(tuple(sorted(known)), name)
    if len({y for points in floors for _, y in points}) == 1:
        floor = next(iter(floors))[0][1]
        axes.axhline(floor, color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
        return [EndLabel(f"floor: {floor:.3f}", axes.get_xlim()[1], floor, FLOOR_STYLE)]
    for points in floors:
        axes.plot(*zip(*points, strict=True), color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
    return [
        EndLabel(f"floor of {name}" if len(floors) > 1 else "floor", *points[-1], FLOOR_STYLE)
        for points, name in floors.items()
    ]


def _scale_axes(
    axes: Axes, config: LinesConfig, results: Sequence[RunResult], words: list[str], position: Position
) -> None:
    x = [position(run) for run in results]
    y = [number_of(run, config.y) for run in results]
    y += [floor for run in results if (floor := floor_of(run, config.y)) is not None]
    if words and config.log_x:
        raise ValueError(f"{config.x} has values in words, which no logarithmic axis takes; leave log_x out")
    if words:
        axes.set_xticks(range(len(words)), [wrapped(word, max(8, 60 // len(words))) for word in words])
        axes.set_xlim(-0.4, len(words) - 0.6)
    elif config.log_x:
        log_x(axes, *log_limits(x), ticks_at(np.log(x)) and sorted(set(x)))
    else:
        axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
        if at := ticks_at(x):
            axes.set_xticks(at)
    if config.log_y:
        if min(y) <= 0:
            raise ValueError(f"{config.y} falls to {min(y):g}, which no logarithmic axis takes; leave log_y out")
        log_y(axes, *log_limits(y))
    else:
        axes.yaxis.set_major_formatter(lambda value, _: in_percent(value) if is_share(config.y) else in_short(value))
    axes.set(xlabel=axis_label(config.x), ylabel=axis_label(config.y))

"""Lines of means over seeds: what they are, how they are drawn, and the words for captions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, LineStyle, figure_of_lines, styles_of

Point = tuple[str, int, float, float]  # the label and the seed of a run, x and y


@dataclass(frozen=True)
class Sketch:
    """A figure, its caption, and a Markdown table if it has one."""

    figure: Figure
    caption: str
    table: str = ""


def at_equal_steps(points: pd.DataFrame, variant: str) -> pd.DataFrame:
    """The points with x averaged over the seeds of a variant, so that y can be averaged step by step.

    x may be the tokens read, which differ between seeds at the same step, as rows differ in length.
    """
    return points.assign(x=points.groupby([variant, "step"], sort=False).x.transform("mean"))


def mean_lines(points: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """A line per label of the points (label, seed, x, y): for each x the mean, min and max of y over the seeds.

    An x that only some seeds have is left out, as the mean would jump.
    """
    lines = {}
    for label, seeds in points.groupby("label", sort=False):
        line = seeds.groupby("x").y.agg(["mean", "min", "max", "count"])
        if len(line := line[line["count"] == seeds.seed.nunique()]):
            lines[label] = line
    return lines


def seeds_in_words(
    results: Sequence[RunResult], mark: str = "line", spread: str = "and the band is their range"
) -> str:
    """A sentence for captions: how many seeds each mark averages, and what shows their spread."""
    counts = pd.Series([run.label for run in results]).value_counts()
    fewest, most = counts.min(), counts.max()
    if most == 1:
        return f"Each {mark} is one run, of one seed."
    many = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    return f"Each {mark} is the mean over {many}, {spread}."


def draw_bands(
    axes: Axes,
    lines: Mapping[str, pd.DataFrame],
    styles: Mapping[str, LineStyle] | None = None,
    *,
    most_markers: int = 25,
) -> list[EndLabel]:
    """Draw each line of `mean_lines`, with the range of its seeds as a band; returns labels for `label_ends`."""
    styles = styles or styles_of(lines)
    labels = []
    for name, line in lines.items():
        style, x = styles[name], line.index
        axes.fill_between(x, line["min"], line["max"], color=style.color, alpha=0.18, linewidth=0)
        marker = style.marker if len(x) <= most_markers else ""
        axes.plot(x, line["mean"], marker=marker, color=style.color, linestyle=style.linestyle, markeredgecolor="white")
        labels.append(EndLabel(name, x[-1], line["mean"].iloc[-1], style))
    return labels


def draw_means(
    title: str, points: pd.DataFrame | Sequence[Point], *more_labels: str
) -> tuple[Figure, Axes, list[EndLabel], pd.Series]:
    """Draw the mean lines of the points on new axes; returns their labels and all means too."""
    lines = mean_lines(pd.DataFrame(points, columns=["label", "seed", "x", "y"]))
    figure, axes = figure_of_lines(title, [*lines, *more_labels])
    return figure, axes, draw_bands(axes, lines), pd.concat([line["mean"] for line in lines.values()])

"""Comparison of ways to write: complete fables, different morals, and their true probabilities."""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from pellucid.config.experiment import WaysConfig
from pellucid.experiments.figures.axis_numbers import in_percent, in_short
from pellucid.experiments.figures.style import FLOOR_STYLE, NAME_WIDTH, PALETTE, Sketch, new_figure, wrapped
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import is_share, seeds_in_words

# The label and number format of each column of a judgement. Without a complete fable there is no surprise.
PANELS: dict[str, tuple[str, Callable[[float], str]]] = {
    "whole": ("whole fables (%)", "{:.0%}".format),
    "morals": ("different morals", "{:.0f}".format),
    "distance": ("distance of the morals (%)", "{:.0%}".format),
    "surprise": ("surprise (nats)", lambda nats: "–" if math.isnan(nats) else f"{nats:.1f}"),
}


def draw_ways(config: WaysConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw a row per way and a panel per measure; the last row and the dashed lines are true fables."""
    judgements = [pd.DataFrame.from_dict(run.writing, orient="index", dtype=float) for run in results if run.writing]
    if not judgements:
        raise ValueError("no run has written anything; give the ways under measures.writing")
    means = pd.concat(judgements).groupby(level=0, sort=False).mean()
    names = [wrapped(label, NAME_WIDTH) for label in means.index]
    figure = new_figure(config.title, 10, max(2.4, 1.3 + 0.3 * len(names)))
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (column, (label, write)), color in zip(panels, PANELS.items(), PALETTE, strict=False):
        values = means[column]
        axes.barh(range(len(names)), values.fillna(0), height=0.55, color=color, alpha=0.55)
        for row, value in enumerate(values):
            end = 0 if pd.isna(value) else value
            text = axes.annotate(write(value), (end, row), (5, 0), textcoords="offset points", va="center", size=9)
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # over the dashed line
        axes.axvline(values.iloc[-1], color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
        axes.set(xlabel=label, xlim=(0, 1.3 * values.max()))
        axes.xaxis.set_major_formatter(
            lambda x, _, column=column: in_percent(x) if is_share(f"{column}.") else in_short(x)
        )
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    words = (
        "Every way goes on from the same first sentences of held-out fables. Whole fables are those that the grammar "
        "accepts to the last character. The distance is the total variation between the morals told and their true "
        "probabilities: 0 if each is told as often as it should be. Surprise is the mean of \u2212ln p(fable) under "
        "the true distribution, over whole fables. The dashed lines are true fables, as many as were drawn."
    )
    header = ["written with", *(label for label, _ in PANELS.values())]
    rows = [[name, *(write(row[column]) for column, (_, write) in PANELS.items())] for name, row in means.iterrows()]
    table = [header, ["---", *["---:"] * len(PANELS)], *rows]
    caption = f"{words} {seeds_in_words(results, 'bar', 'without their spread')}"
    return Sketch(figure, caption, "\n".join(f"| {' | '.join(map(str, row))} |" for row in table))

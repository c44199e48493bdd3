"""The cost of one more token after 10 to 10,000 others, from what `measure.py context --record` wrote.

Remakes: docs/family/context.png
Takes: a second
Needs: `measure.py context --record` before
"""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from results import ROOT, read

from pellucid.figures import STYLE, EndLabel, label_ends, line_style, log_axis, log_limits, new_figure

FILE = ROOT / "docs/family/context.png"


def draw(*, to: Path = FILE) -> list[Path]:
    with matplotlib.rc_context(STYLE):
        costs_of_a_token(read()["context"]["figures"]).savefig(to, dpi=150)
    return [to]


def costs_of_a_token(figures: dict[str, dict[str, float]]) -> Figure:
    lengths = [int(length.replace(",", "")) for length in figures]
    attentions = [what.removesuffix(" (ms)") for what in next(iter(figures.values())) if what.endswith(" (ms)")]
    figure = new_figure("What one more token costs, by the tokens before it", 10, 4)
    panels = figure.subplots(1, 2)
    for axes, unit, label in zip(panels, ("ms", "KB"), ("time (ms)", "memory kept of the text (KB)"), strict=True):
        labels, costs_of = [], {name: [row[f"{name} ({unit})"] for row in figures.values()] for name in attentions}
        for i, (name, costs) in enumerate(costs_of.items()):
            style = line_style(i)
            axes.plot(lengths, costs, style.marker, color=style.color, linestyle=style.linestyle)
            labels.append(EndLabel(name, lengths[-1], costs[-1], style))
        log_axis(axes, "x", log_limits(lengths), [10, 100, 1_000, 10_000])
        log_axis(axes, "y", log_limits([cost for costs in costs_of.values() for cost in costs]))
        axes.set_xlabel("tokens before it")
        axes.set_title(label, loc="left")
        label_ends(axes, labels)
    return figure

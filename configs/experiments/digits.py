"""When each seed came to have half of the digits right: the share of seeds that had not, update by update."""

from collections.abc import Sequence

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the share of seeds that have not got there yet (Kaplan and Meier 1958, where all are watched to the end)."""
    picture = new_figure(figure.title, 7.5, 4.0)
    axes = picture.add_subplot()
    labels = []
    for index, variant in enumerate(dict.fromkeys(run.label for run in results)):
        runs, style = [run for run in results if run.label == variant], line_style(index)
        last = max(point["step"] for run in runs for point in run.curve)
        reached = sorted(step for run in runs if (step := run.half_right["digits"]) is not None)
        steps = [0, *reached, last]
        shares = [1.0, *(1 - (i + 1) / len(runs) for i in range(len(reached)))]
        shares.append(shares[-1])
        axes.step(steps, shares, where="post", color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(variant, last, shares[-1], style))
    axes.set(xlabel="updates", ylabel="seeds that have not half of the digits right", ylim=(-0.03, 1.03))
    label_ends(axes, labels)
    return Sketch(picture, "The share of seeds that have not yet had half of the digits right, as first evaluated.")

"""What post-training gains and loses, drawn: rewards beside the exact frontier, praise beside the truth."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from measurements.frontier import RewardDistribution, frontier

from pellucid.figures import (
    FLOOR_STYLE,
    EndLabel,
    figure_of_lines,
    in_short,
    label_ends,
    line_style,
    new_figure,
)

UPDATES_AVERAGED = 5  # answers are few, and their rewards noisy


class Reached(NamedTuple):
    """A trained policy's KL divergence from the reference in nats, and its mean reward."""

    kl: float
    reward: float


def draw_frontier(
    title: str, prompts: Sequence[RewardDistribution], methods: Mapping[str, Sequence[Reached]]
) -> Figure:
    """Draw the frontier as a line, and the points of each method, joined in their order (of checkpoints, or of β).

    prompts: the distribution of rewards for each under the reference.
    """
    optima = frontier(prompts)
    figure, axes = figure_of_lines(title, ["the best possible", *methods])
    axes.plot([point.kl for point in optima], [point.reward for point in optima], color="black", linewidth=2, zorder=3)
    labels = [EndLabel("the best possible", optima[-1].kl, optima[-1].reward, FLOOR_STYLE)]
    for index, (name, points) in enumerate(methods.items()):
        style, (kls, rewards) = line_style(index), zip(*points, strict=True)
        axes.plot(kls, rewards, color=style.color, linestyle=style.linestyle, linewidth=1, alpha=0.6)
        axes.plot(kls, rewards, style.marker, color=style.color, markersize=6.5, markeredgecolor="white", zorder=4)
        labels.append(EndLabel(name, kls[-1], rewards[-1], style))
    axes.set(xlabel="KL divergence from the reference (nats per answer)", ylabel="mean reward")
    axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    axes.set_xlim(left=0)
    label_ends(axes, labels)
    return figure


def draw_over_optimization(title: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw proxy reward and true reward against updates, in two panels. runs: rows of metrics.jsonl, by name.

    The true reward is the verifier's: half for a complete fable, half for one that obeys.
    """
    figure = new_figure(title, 9.5, 4.2)
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, ("the reward model says", "the grammar says"), strict=True):
        axes.set(title=name, xlabel="updates", ylabel="mean reward of the answers")
    labels = []
    for index, (name, rows) in enumerate(runs.items()):
        frame, style = pd.DataFrame(rows), line_style(index)
        truth = (frame["whole"] + frame["obeys"]) / 2
        for axes, rewards in zip(panels, (frame["reward"], truth), strict=True):
            smooth = rewards.rolling(UPDATES_AVERAGED, min_periods=1).mean()
            axes.plot(frame["step"], rewards, color=style.color, linewidth=0.6, alpha=0.3)
            axes.plot(frame["step"], smooth, color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(name, float(frame["step"].iloc[-1]), float(smooth.iloc[-1]), style))
    label_ends(panels[1], labels)
    return figure

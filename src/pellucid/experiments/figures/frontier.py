"""Mean reward against KL divergence from the reference: the exact frontier, and the methods below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pellucid.experiments.figures.axis_numbers import in_short
from pellucid.experiments.figures.style import FLOOR_STYLE, EndLabel, Sketch, figure_of_lines, label_ends, line_style
from pellucid.post_training.frontier import RewardDistribution, best_reward, frontier


class Reached(NamedTuple):
    """A trained policy's KL divergence from the reference in nats, and its mean reward."""

    kl: float
    reward: float


def draw_frontier(
    title: str, prompts: Sequence[RewardDistribution], methods: Mapping[str, Sequence[Reached]]
) -> Sketch:
    """Draw the frontier as a line, and the points of each method, joined in their order (of checkpoints, or of β).

    prompts: the distribution of rewards for each under the reference.
    """
    optima = frontier(prompts)
    figure, axes = figure_of_lines(title, ["the best possible", *methods])
    axes.plot([point.kl for point in optima], [point.reward for point in optima], color="black", linewidth=2, zorder=3)
    labels = [EndLabel("the best possible", optima[-1].kl, optima[-1].reward, FLOOR_STYLE)]
    rows = ["| method | KL (nats) | reward | the best for this KL |", "|---|---:|---:|---:|"]
    for index, (name, points) in enumerate(methods.items()):
        style, (kls, rewards) = line_style(index), zip(*points, strict=True)
        axes.plot(kls, rewards, color=style.color, linestyle=style.linestyle, linewidth=1, alpha=0.6)
        axes.plot(kls, rewards, style.marker, color=style.color, markersize=6.5, markeredgecolor="white", zorder=4)
        labels.append(EndLabel(name, kls[-1], rewards[-1], style))
        rows += [f"| {name} | {kl:.2f} | {r:.3f} | {best_reward(prompts, kl):.3f} |" for kl, r in points]
    axes.set(xlabel="KL divergence from the reference (nats per answer)", ylabel="mean reward")
    axes.xaxis.set_major_formatter(lambda value, _: in_short(value))
    axes.set_xlim(left=0)
    label_ends(axes, labels)
    caption = (
        "Mean reward against the KL divergence from the model that training started from. The black line is the "
        "optimum for every β: exact if the reference's rewards are known, else as good as the samples of them."
    )
    return Sketch(figure, caption, "\n".join(rows))

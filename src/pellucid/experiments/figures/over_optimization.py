"""Over-optimization: the proxy reward of a policy's answers beside the true one, which falls behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pellucid.experiments.figures.style import EndLabel, Sketch, label_ends, line_style, new_figure

UPDATES_AVERAGED = 5  # answers are few, and their rewards noisy


def draw_over_optimization(title: str, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Sketch:
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
    caption = (
        "The mean reward of each update's answers, as the reward model that is optimized judges them (left), and as "
        f"the grammar does (right); thick lines are means of {UPDATES_AVERAGED} updates."
    )
    return Sketch(figure, caption)

"""Figures of a run.

loss.png       training and validation loss, the floor below which no model can go, and the excess over it
skills.png     the excess of each skill
rewards.png    the reward of answers, and the KL divergence from the start
"""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from pellucid.figures import (
    FLOOR_STYLE,
    MODEL,
    RIVAL,
    STYLE,
    SURPRISE,
    TRUTH,
    in_short,
    line_style,
    new_figure,
    save_figure,
)
from pellucid.training.metrics import Row

__all__ = ["loss_figure", "rewards_figure", "save_figure", "skills_figure"]

NEARLY_ZERO = 0.01  # nats per document: below, an axis is linear, as what is measured of a small excess may be negative
DOTS = {"color": MODEL, "marker": "o", "markersize": 4}
DASHED: dict[str, Any] = {"color": TRUTH, "linestyle": FLOOR_STYLE.linestyle}
STAR = {"color": TRUTH, "marker": "*", "markersize": 11, "linestyle": ""}

Curve = tuple[Sequence[tuple[float, float]], dict[str, Any]]  # its points, and how they are drawn


@rc_context(STYLE)
def loss_figure(rows: Sequence[Row], floor: float | None, name: str) -> Figure:
    """Training and validation loss (nats per token, or per pair of answers) against tokens; below, the excess.

    Evaluations during training read only part of the text, whose floor may be a little higher or lower. Each loss is
    shifted by the difference, so that its height above the line is the model's excess.
    """
    train = [(row["tokens"], row["train_loss"]) for row in rows if row.get("train_loss") is not None]
    evaluated = [row for row in rows if row.get("val_loss") is not None]
    excess = [
        (row["tokens"], row["val_loss"] - row["val_floor"]) for row in evaluated if row.get("val_floor") is not None
    ]
    held_out = [
        (row["tokens"], row["val_loss"] + (floor - row["val_floor"] if floor and row.get("val_floor") else 0))
        for row in evaluated
    ]
    curves: list[Curve] = [(train, {"color": SURPRISE, "linewidth": 1, "label": "training (each batch)"})]
    if held_out:
        (x, y), best = min(zip(held_out, evaluated, strict=True), key=lambda pair: pair[0][1])
        curves += [
            (held_out, {**DOTS, "label": "held out: floor + excess" if excess else "held out"}),
            ([(x, y)], {**STAR, "label": f"best: {y:.3f}, at step {best['step']:,}"}),
        ]
    unit = "pair" if any("margin" in row for row in rows) else "token"
    figure = _figure_of(
        f"{name}: {_how_near(evaluated) if evaluated else 'not yet evaluated'}",
        {
            f"loss (nats per {unit})": curves,
            **({f"excess over the floor\n(nats per {unit})": [(excess, DOTS)]} if excess else {}),
        },
    )
    if floor is not None:
        figure.axes[0].axhline(floor, **DASHED, label=f"floor: {floor:.3f}, the text's own −ln p")
    figure.axes[0].legend(handles=figure.axes[0].lines)
    return figure


def _how_near(evaluated: Sequence[Row]) -> str:
    """The finding, for the title. The distance from the floor is rounded up: it is that of a part of the text."""
    best = min(evaluated, key=lambda row: row["val_loss"])
    if floor := best.get("val_floor"):
        near = (
            f"within {digit * 10.0**power:g} % of"
            for power in range(-3, 3)
            for digit in (1, 2, 5)
            if best["val_loss"] <= floor * (1 + digit * 10.0 ** (power - 2))
        )
        return f"{next(near, 'far from')} the floor, below which no model can go"
    then = ", and then it rises" if evaluated[-1]["val_loss"] > 1.01 * best["val_loss"] else ""
    return f"the held-out loss falls to {best['val_loss']:.3f}{then}"


def _figure_of(title: str, panels: dict[str, list[Curve]], nearly_zero: float | None = None) -> Figure:
    """Curves against the tokens seen, by the label of their axis: one pair of axes below the other.

    An axis is logarithmic if all of its numbers are positive; or all are, and that of y is linear where `nearly_zero`.
    """
    figure = new_figure(title, 7.5, 3 + 1.5 * len(panels))
    columns = figure.subplots(len(panels), sharex=True, squeeze=False)
    for axes, (label, curves) in zip(columns.flat, panels.items(), strict=True):
        for points, style in curves:
            axes.plot(*zip(*points, strict=True), **style)
        if nearly_zero:
            axes.axhspan(-nearly_zero, nearly_zero, color="#f0f0f0", zorder=0, label="axis is linear")
            axes.set_yscale("symlog", linthresh=nearly_zero)
            axes.set_xscale("log", subs=[])
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        elif all(y > 0 for points, _ in curves for _, y in points):
            axes.set_yscale("log", subs=[])
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter(lambda x, _: in_short(x))
        axes.yaxis.set_major_formatter(lambda y, _: in_short(y))
        axes.set(ylabel=label, xlabel="tokens seen" if axes is columns.flat[-1] else "")
    return figure


@rc_context(STYLE)
def skills_figure(rows: Sequence[Row], name: str) -> Figure:
    """The excess loss of each skill (nats per document) against the tokens seen, both axes logarithmic.

    Around zero the axis is linear. No true excess is negative: how far below zero a skill has been measured is how far
    chance can take it, and marks that are as near to zero are open.
    """
    evaluated = [row for row in rows if row.get("skills")]
    skills = {
        skill: [(row["tokens"], row["skills"][skill]["excess_nats_per_document"]) for row in evaluated]
        for skill in evaluated[0]["skills"]
    }
    curves: list[Curve] = []
    for index, (skill, points) in enumerate(skills.items()):
        style, chance = line_style(index), -min(0, *(y for _, y in points))
        clear, near = (
            [(x, y if (abs(y) > chance) is wanted else math.nan) for x, y in points] for wanted in (True, False)
        )
        curves += [
            (clear, {**vars(style), "label": skill}),
            (near, {**vars(style), "linestyle": "", "markerfacecolor": "none"}),
        ]
    figure = _figure_of(
        f"{name}: at the end, {max(skills, key=lambda skill: skills[skill][-1][1])} has most left to learn",
        {"excess over the floor (nats per document)": curves},
        max(NEARLY_ZERO, *(-y for points in skills.values() for _, y in points)),
    )
    figure.legend(loc="outside right center", title="skill (open: chance)", handlelength=3)
    return figure


@rc_context(STYLE)
def rewards_figure(rows: Sequence[Row], title: str) -> Figure:
    """Rewards, verdicts and KL divergence against updates, of answers to training and to held-out instructions."""
    figure = new_figure(title, 7.5, 6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.set(ylabel="mean of answers")
    below.set(xlabel="updates", ylabel="KL from the start\n(nats per answer)")
    curves = [(above, "reward", TRUTH), (above, "whole", MODEL), (above, "obeys", RIVAL), (below, "kl", TRUTH)]
    of_questions = [(above, "right", MODEL), (above, "thought", RIVAL)]
    for axes, name, color in curves + of_questions:
        training = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        held_out = [(row["step"], row[f"val_{name}"]) for row in rows if row.get(f"val_{name}") is not None]
        if training:
            axes.plot(*zip(*training, strict=True), color=color, linewidth=1, alpha=0.4)
        if held_out:
            label = {"whole": "whole fables", "obeys": "as asked", "thought": "symbols of a thought"}.get(name, name)
            axes.plot(*zip(*held_out, strict=True), color=color, marker="o", markersize=4, label=f"{label}, held out")
    if above.lines:
        above.legend()
    return figure

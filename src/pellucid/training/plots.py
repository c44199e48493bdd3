"""Figures of a run.

loss.png       training and validation loss, and the floor below which no model can go
skills.png     the excess loss of each skill
rewards.png    the reward of answers, and the KL divergence from the start
"""

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
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

LEAST_EXCESS = 1e-3  # nats per document; smaller or negative excesses are drawn here


@rc_context(STYLE)
def loss_figure(rows: Sequence[Row], floor: float | None, title: str) -> Figure:
    """Training and validation loss (nats per token, or per pair of answers) against tokens; best step, floor if known.

    Evaluations during training read only part of the text, whose floor may be a little higher or lower. Each loss is
    shifted by the difference, so that its height above the line is the model's excess.
    """
    train = [(row["tokens"], row["train_loss"]) for row in rows if row.get("train_loss") is not None]
    evaluated = [row for row in rows if row.get("val_loss") is not None]
    val = [(row["tokens"], _above(floor, row)) for row in evaluated]
    is_log = all(loss > 0 for _, loss in train + val)
    unit = "pair" if any("margin" in row for row in rows) else "token"
    figure, axes = _empty_figure(title, f"loss (nats per {unit})", "linear", "log" if is_log else "linear")
    if train:
        axes.plot(*zip(*train, strict=True), color=SURPRISE, linewidth=1, label="training (each batch)")
    if val:
        axes.plot(
            *zip(*val, strict=True),
            color=MODEL,
            marker="o",
            markersize=4,
            label="held out" if floor is None else "held out: the floor, plus the excess over its own floor",
        )
        best = min(evaluated, key=lambda row: row["val_loss"])
        label = f"best: {_above(floor, best):.3f}, at step {best['step']:,}"
        axes.plot(best["tokens"], _above(floor, best), "*", color=TRUTH, markersize=11, label=label)
    if floor is not None:
        label = f"floor: {floor:.3f}, the text's own −ln p"
        axes.axhline(floor, color=FLOOR_STYLE.color, linestyle=FLOOR_STYLE.linestyle, label=label)
    if is_log:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axes.minorticks_off()
    if axes.lines:
        axes.legend()
    return figure


def _above(floor: float | None, row: Row) -> float:
    """The validation loss of a row, shifted as if its text had this floor."""
    loss: float = row["val_loss"]
    return loss if floor is None or row.get("val_floor") is None else floor + loss - row["val_floor"]


@rc_context(STYLE)
def skills_figure(rows: Sequence[Row], title: str) -> Figure:
    """The excess loss of each skill (nats per document) against the tokens seen, both axes logarithmic."""
    figure, axes = _empty_figure(title, "excess over the floor (nats per document)", "log", "log")
    evaluated = [row for row in rows if row.get("skills")]
    tokens = [row["tokens"] for row in evaluated]
    for index, skill in enumerate(evaluated[0]["skills"]):
        style = line_style(index)
        excesses = [row["skills"][skill]["excess_nats_per_document"] for row in evaluated]
        shown = [max(excess, LEAST_EXCESS) for excess in excesses]
        axes.plot(tokens, shown, color=style.color, marker=style.marker, linestyle=style.linestyle, label=skill)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(lambda x, _: "")
    figure.legend(loc="outside right center", title="skill", handlelength=3)
    return figure


@rc_context(STYLE)
def rewards_figure(rows: Sequence[Row], title: str) -> Figure:
    """Rewards, verdicts and KL divergence against updates, of answers to training and to held-out instructions."""
    figure = new_figure(title, 7.5, 6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.set(ylabel="mean of answers")
    below.set(xlabel="updates", ylabel="KL from the start\n(nats per answer)")
    curves = [(above, "reward", TRUTH), (above, "whole", MODEL), (above, "obeys", RIVAL), (below, "kl", TRUTH)]
    for axes, name, color in curves:
        training = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        held_out = [(row["step"], row[f"val_{name}"]) for row in rows if row.get(f"val_{name}") is not None]
        if training:
            axes.plot(*zip(*training, strict=True), color=color, linewidth=1, alpha=0.4)
        if held_out:
            label = {"whole": "whole fables", "obeys": "as asked"}.get(name, name)
            axes.plot(*zip(*held_out, strict=True), color=color, marker="o", markersize=4, label=f"{label}, held out")
    if above.lines:
        above.legend()
    return figure


def _empty_figure(title: str, ylabel: str, xscale: str, yscale: str) -> tuple[Figure, Axes]:
    figure = new_figure(title, 7.5, 4.5)
    axes = figure.add_subplot()
    axes.set(xlabel="tokens seen", ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.xaxis.set_major_formatter(lambda x, _: in_short(x))
    axes.yaxis.set_major_formatter(lambda y, _: in_short(y))
    return figure, axes

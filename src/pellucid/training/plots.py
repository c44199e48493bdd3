"""Figures of a run.

loss.png       training and validation loss, and the floor below which no model can go
skills.png     the excess loss of each skill
rewards.png    the reward of answers, and the KL divergence from the start
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from pellucid.files import written_whole
from pellucid.training.metrics import Row

# Okabe and Ito's palette, whose colours can be told apart by the colour-blind, and in grey.
BLUE, ORANGE, BLACK = "#0072B2", "#D55E00", "#000000"
SKILL_STYLES = [
    (BLACK, "o", "-"),
    ("#999999", "s", "-"),
    (ORANGE, "^", "-"),
    (BLUE, "D", "-"),
    ("#009E73", "v", "-"),
    ("#CC79A7", "P", "--"),
    ("#56B4E9", "X", "--"),
    ("#F0E442", "*", ":"),
]
LEAST_EXCESS = 1e-3  # nats per document; smaller or negative excesses are drawn here


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
        axes.plot(*zip(*train, strict=True), color=BLUE, linewidth=1, alpha=0.8, label="training (each batch)")
    if val:
        axes.plot(*zip(*val, strict=True), color=ORANGE, marker="o", markersize=4, label="validation")
        best = min(evaluated, key=lambda row: row["val_loss"])
        label = f"best: {_above(floor, best):.3f}, at step {best['step']:,}"
        axes.plot(
            best["tokens"], _above(floor, best), color=BLACK, marker="*", markersize=11, linestyle="", label=label
        )
    if floor is not None:
        label = f"floor: {floor:.3f}, the entropy of the text"
        axes.axhline(floor, color=BLACK, linestyle="--", linewidth=1.2, label=label)
    if is_log:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axes.minorticks_off()
    if axes.lines:
        axes.legend(frameon=False)
    return figure


def _above(floor: float | None, row: Row) -> float:
    """The validation loss of a row, shifted as if its text had this floor."""
    loss: float = row["val_loss"]
    return loss if floor is None or row.get("val_floor") is None else floor + loss - row["val_floor"]


def skills_figure(rows: Sequence[Row], title: str) -> Figure:
    """The excess loss of each skill (nats per document) against the tokens seen, both axes logarithmic."""
    figure, axes = _empty_figure(title, "excess over the floor (nats per fable)", "log", "log")
    evaluated = [row for row in rows if row.get("skills")]
    tokens = [row["tokens"] for row in evaluated]
    for skill, (color, marker, line) in zip(evaluated[0]["skills"], SKILL_STYLES, strict=False):
        excesses = [row["skills"][skill]["excess_nats_per_document"] for row in evaluated]
        shown = [max(excess, LEAST_EXCESS) for excess in excesses]
        axes.plot(tokens, shown, color=color, marker=marker, linestyle=line, markersize=5, linewidth=1.5, label=skill)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_formatter(lambda x, _: "")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def rewards_figure(rows: Sequence[Row], title: str) -> Figure:
    """Rewards, verdicts and KL divergence against updates, of answers to training and to held-out instructions."""
    figure = Figure(figsize=(7.5, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.set(title=title, ylabel="mean of answers")
    below.set(xlabel="updates", ylabel="KL from the start\n(nats per answer)")
    curves = [(above, "reward", BLACK), (above, "whole", BLUE), (above, "obeys", ORANGE), (below, "kl", BLACK)]
    for axes, name, color in curves:
        training = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        held_out = [(row["step"], row[f"val_{name}"]) for row in rows if row.get(f"val_{name}") is not None]
        if training:
            axes.plot(*zip(*training, strict=True), color=color, linewidth=1, alpha=0.4)
        if held_out:
            label = {"whole": "whole fables", "obeys": "as asked"}.get(name, name)
            axes.plot(*zip(*held_out, strict=True), color=color, marker="o", markersize=4, label=f"{label}, held out")
    for axes in (above, below):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if above.lines:
        above.legend(frameon=False)
    return figure


def _empty_figure(title: str, ylabel: str, xscale: str, yscale: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel="tokens seen", ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x else "0")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Figure, file: Path) -> None:
    """Save a figure as a PNG, atomically."""
    with written_whole(file) as draft:
        figure.savefig(draft, dpi=150, format="png")

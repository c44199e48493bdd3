"""loss.png: how the loss fell, and the floor below which no model can go. skills.png: what was learned when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from pellucid.files import written_whole
from pellucid.training.metrics import Row

# Okabe and Ito's palette: told apart by every kind of colour vision, and in grey.
BLUE, ORANGE, BLACK = "#0072B2", "#D55E00", "#000000"
SKILL_STYLES: list[dict[str, Any]] = [
    {"color": color, "marker": marker, "linestyle": line}
    for color, marker, line in [
        (BLACK, "o", "-"),
        ("#999999", "s", "-"),
        (ORANGE, "^", "-"),
        (BLUE, "D", "-"),
        ("#009E73", "v", "-"),
        ("#CC79A7", "P", "--"),
        ("#56B4E9", "X", "--"),
    ]
]
LEAST_EXCESS = 1e-3  # nats per document; less, or luck below the floor, is drawn here


def loss_figure(rows: Sequence[Row], floor: float | None, title: str) -> Figure:
    """Training and validation loss (nats per token) against the tokens seen; the best step, and the floor if known."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    train = [(row["tokens"], row["train_loss"]) for row in rows if row.get("train_loss") is not None]
    val = [(row["tokens"], row["val_loss"]) for row in rows if row.get("val_loss") is not None]
    if train:
        axes.plot(*zip(*train, strict=True), color=BLUE, linewidth=1, alpha=0.8, label="training (each batch)")
    if val:
        axes.plot(*zip(*val, strict=True), color=ORANGE, marker="o", markersize=4, label="validation")
        best = min((row for row in rows if row.get("val_loss") is not None), key=lambda row: row["val_loss"])
        label = f"best: {best['val_loss']:.3f}, at step {best['step']:,}"
        axes.plot(best["tokens"], best["val_loss"], color=BLACK, marker="*", markersize=11, linestyle="", label=label)
    if floor is not None:
        axes.axhline(
            floor,
            color=BLACK,
            linestyle="--",
            linewidth=1.2,
            label=f"floor: {floor:.3f}, the entropy of the text",
        )
    if all(loss > 0 for _, loss in train + val):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.minorticks_off()
    axes.set(title=title, xlabel="tokens seen", ylabel="loss (nats per token)")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x else "0")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False)
    return figure


def skills_figure(rows: Sequence[Row], title: str) -> Figure:
    """The excess of each skill (nats per document) against the tokens seen, both axes logarithmic."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    evaluated = [row for row in rows if row.get("skills")]
    tokens = [row["tokens"] for row in evaluated]
    for skill, style in zip(evaluated[0]["skills"], SKILL_STYLES, strict=True):
        excesses = [row["skills"][skill]["excess_nats_per_document"] for row in evaluated]
        drawn = [max(excess, LEAST_EXCESS) for excess in excesses]
        axes.plot(tokens, drawn, **style, markersize=5, linewidth=1.5, label=skill)
    axes.set(title=title, xlabel="tokens seen", ylabel="excess over the floor (nats per fable)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M")
    axes.xaxis.set_minor_formatter(lambda x, _: "")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def save_figure(figure: Figure, file: Path) -> None:
    """As a PNG that is whole or not there, as everything that a run leaves."""
    with written_whole(file) as draft:
        figure.savefig(draft, dpi=150, format="png")

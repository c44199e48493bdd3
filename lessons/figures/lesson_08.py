"""The figures of lesson 8."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from lesson_08 import (
    fables_as_tokens,
    five_models,
    gradient_by_distance,
    loss_at_the_end,
    new_lstm_reader,
    new_reader,
    positive_features,
    train_reader,
)

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#3d8b5f", "#777777"


def _box(axes: Axes, x: float, y: float, width: float, text: str, colour: str = GREY, height: float = 0.5) -> None:
    style = {"boxstyle": "round,pad=0.02,rounding_size=0.06", "lw": 1.4}
    axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, fc="white", ec=colour, **style))
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY, lw: float = 1.4
) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": lw, "shrinkA": 0, "shrinkB": 0}
    )


def unrolled() -> Figure:
    """A recurrent network over four words, and the way of a gradient from the last state to the first word."""
    figure, axes = plt.subplots(figsize=(9, 3.3), layout="constrained")
    places = [1.2, 3.4, 5.6, 7.8]
    axes.text(-0.25, 1, "$h_{-1} = 0$", ha="center", va="center", fontsize=11)
    _arrow(axes, (0.2, 1), (0.57, 1), BLUE)
    for t, (x, word) in enumerate(zip(places, ("the", "sly", "fox", "met"), strict=True)):
        _box(axes, x, 1, 1.2, f"$h_{t}$", BLUE)
        _box(axes, x, -0.1, 0.9, word)
        _arrow(axes, (x, 0.18), (x, 0.72))
        axes.text(x + 0.1, 0.45, "$U$", color=GREY, va="center", fontsize=10.5)
        if t:
            _arrow(axes, (places[t - 1] + 0.63, 1), (x - 0.63, 1), BLUE)
            axes.text(x - 1.1, 1.06, "$W$", color=BLUE, ha="center", va="bottom", fontsize=10.5)
            axes.annotate(
                "",
                (places[t - 1] + 0.15, 1.32),
                (x - 0.15, 1.32),
                arrowprops={"arrowstyle": "-|>", "color": ORANGE, "lw": 1.6, "connectionstyle": "arc3,rad=0.28"},
            )
            axes.text(
                x - 1.1,
                1.72,
                rf"$\cdot \; \partial h_{t} / \partial h_{t - 1}$",
                color=ORANGE,
                ha="center",
                va="bottom",
            )
    _arrow(axes, (8.43, 1), (9.1, 1), BLUE)
    axes.text(9.15, 1, "next word", va="center", fontsize=10.5)
    axes.text(9.15, 1.72, "loss", color=ORANGE, va="bottom", fontsize=10.5)
    axes.text(4.5, 2.12, "the gradient walks back, and each step multiplies", color=ORANGE, ha="center", fontsize=10.5)
    axes.annotate(
        "",
        (7.95, 1.32),
        (9.1, 1.78),
        arrowprops={"arrowstyle": "-|>", "color": ORANGE, "lw": 1.6, "connectionstyle": "arc3,rad=0.15"},
    )
    axes.set(xlim=(-0.8, 10.3), ylim=(-0.5, 2.4))
    axes.axis("off")
    return figure


def lstm() -> Figure:
    """The cells of an LSTM as a line that runs through; the gates scale, add and show."""
    figure, axes = plt.subplots(figsize=(8.6, 3.6), layout="constrained")

    def operation(x: float, y: float, sign: str) -> None:
        axes.add_patch(Circle((x, y), 0.2, fc="white", ec=BLUE, lw=1.6, zorder=3))
        axes.text(x, y, sign, ha="center", va="center", fontsize=12, color=BLUE, zorder=4)

    axes.text(0.1, 3, "$c_{t-1}$", ha="right", va="center", fontsize=12, color=BLUE)
    axes.text(9.15, 3, "$c_t$", va="center", fontsize=12, color=BLUE)
    _arrow(axes, (0.2, 3), (9.1, 3), BLUE, lw=2.6)
    operation(1.8, 3, "×")
    operation(4.2, 3, "+")
    operation(4.2, 2.1, "×")
    operation(7.4, 1.55, "×")
    for x, name, label in ((1.8, "$f_t$", "keep?"), (3.3, "$i_t$", "let in?"), (6.2, "$o_t$", "show?")):
        _box(axes, x, 0.9, 0.95, name, ORANGE)
        axes.text(x, 0.5, label, ha="center", va="top", color=ORANGE, fontsize=10)
    _box(axes, 4.7, 0.9, 0.95, r"$\tilde c_t$", GREEN)
    axes.text(4.7, 0.5, "proposal", ha="center", va="top", color=GREEN, fontsize=10)
    _arrow(axes, (1.8, 1.18), (1.8, 2.78), ORANGE)
    _arrow(axes, (3.45, 1.18), (4.04, 1.95), ORANGE)
    _arrow(axes, (4.62, 1.18), (4.3, 1.9), GREEN)
    _arrow(axes, (4.2, 2.32), (4.2, 2.78), BLUE)
    _arrow(axes, (6.7, 1.0), (7.24, 1.42), ORANGE)
    _box(axes, 7.4, 2.35, 0.8, "tanh", BLUE, height=0.4)
    _arrow(axes, (7.4, 3), (7.4, 2.59), BLUE)
    _arrow(axes, (7.4, 2.13), (7.4, 1.77), BLUE)
    _arrow(axes, (7.62, 1.55), (9.1, 1.55), BLUE)
    axes.text(9.15, 1.55, "$h_t$", va="center", fontsize=12, color=BLUE)
    axes.text(0.1, -0.2, "$x_t, h_{t-1}$", ha="right", va="center", fontsize=12)
    axes.plot([0.2, 6.2], [-0.2, -0.2], color=GREY, lw=1.4)
    for x in (1.8, 3.3, 4.7, 6.2):
        _arrow(axes, (x, -0.2), (x, 0.13), GREY)
    axes.set(xlim=(-0.8, 9.7), ylim=(-0.5, 3.4), aspect="equal")
    axes.axis("off")
    return figure


def gradient() -> Figure:
    """The gradient of the last word's loss by the embedding of an earlier word, against the distance."""
    tokens = fables_as_tokens(n_texts=40, n_tokens=122)
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    colours = {"RNN, g = 1": ORANGE, "RNN, g = 0.8": "#cf9460", "LSTM": GREEN, "decoder": "#8fb0dc", "demo": BLUE}
    ends = {"demo": "the demo, trained", "decoder": "decoder", "LSTM": "LSTM", "RNN, g = 1": "RNN, g = 1"}
    for name, model in five_models().items():
        fades = gradient_by_distance(model, tokens)
        fades = fades / fades[0]
        axes.semilogy(fades, color=colours[name], lw=1.8)
        if name in ends:
            axes.text(122, fades[-1], ends[name], color=colours[name], va="center")
        else:
            axes.text(52, 4e-6, name, color=colours[name])
    steps = np.arange(0, 46)
    axes.semilogy(steps, (1 / (1 + math.exp(-1))) ** steps, color=GREEN, lw=1, ls=":")
    axes.text(32, 1.5e-5, "$0.73^n$: the gates alone", color=GREEN, ha="right")
    axes.set(xlim=(0, 120), ylim=(3e-7, 2), xlabel="words between", ylabel="gradient / gradient at distance 0")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def keys() -> Figure:
    """The share of the weight that falls on the right one of n random keys, for three kernels."""
    rng = np.random.default_rng(6)
    sizes = 2 ** np.arange(0, 10)
    shares: dict[str, list[float]] = {"softmax": [], "square": [], "elu": []}
    for n in sizes:
        k = rng.normal(size=(100, n, 32))
        products = np.einsum("ik,ink->in", k[:, 0], k)
        phi = positive_features(k)
        for name, weights in (
            ("softmax", np.exp(products / math.sqrt(32))),
            ("square", products**2),
            ("elu", np.einsum("ik,ink->in", phi[:, 0], phi)),
        ):
            shares[name].append((weights[:, 0] / weights.sum(axis=1)).mean())
    figure, axes = plt.subplots(figsize=(7.6, 3.7), layout="constrained")
    for name, colour, label in (
        ("softmax", BLUE, "softmax: no finite state"),
        ("square", GREEN, "(q · k)²: 528 features"),
        ("elu", ORANGE, "elu + 1: 32 features"),
    ):
        axes.semilogx(sizes, shares[name], "o-", color=colour, base=2, lw=1.8, ms=4)
        axes.text(600, shares[name][-1] + (0.02 if name == "elu" else 0.03), label, color=colour, va="center")
    axes.semilogx(sizes, 1 / sizes, color=GREY, lw=1, ls=":", base=2)
    axes.text(1.15, 0.12, "spread evenly", color=GREY)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.set(xlim=(1, 512), ylim=(0, 1.03), xlabel="keys stored, of 32 numbers each", ylabel="weight of the right key")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def echo() -> Figure:
    """The loss at the last word of the echo language against the number of fillers, between its two floors."""
    figure, axes = plt.subplots(figsize=(7.6, 3.9), layout="constrained")
    remembers, forgets = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / 3), math.log(4)
    floors = ((remembers, "a reader who remembers", -0.02, "top"), (forgets, "one who has forgotten", 0.02, "bottom"))
    for height, who, shift, side in floors:
        axes.axhline(height, color=GREY, lw=1, ls="--")
        axes.text(0.3, height + shift, f"floor of {who}: {height:.3f}", color=GREY, va=side)
    distances = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24)
    for seed in range(3):
        losses = []
        for d in distances:
            reader = new_reader(16, gain=0.5, seed=seed)
            train_reader(reader, d, n_steps=200, seed=seed)
            losses.append(loss_at_the_end(reader, d))
        axes.plot(distances, losses, "o-", color=ORANGE, lw=1.4, ms=4, alpha=0.8)
    axes.text(17, 1.2, "RNN, g = 0.5: three starts", color=ORANGE)
    far = (2, 8, 16, 24)
    losses = []
    for d in far:
        reader = new_lstm_reader(12, bias=4.0, seed=0)
        train_reader(reader, d, n_steps=150, rate=0.03)
        losses.append(loss_at_the_end(reader, d))
    axes.plot(far, losses, "o-", color=BLUE, lw=1.8, ms=5)
    axes.text(24, losses[-1] + 0.04, "LSTM, forget gates with bias 4", color=BLUE, ha="right", va="bottom")
    axes.set(
        xlim=(0, 24.6),
        ylim=(0.3, 1.55),
        xlabel="d: fillers between the two names",
        ylabel="loss at the last word (nats)",
    )
    axes.spines[["top", "right"]].set_visible(False)
    return figure

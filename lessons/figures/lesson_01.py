"""The figures of lesson 1."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from autodiff.operations import sum_of, tanh
from autodiff.tape import chain, recorded_memory, vjp

BLUE, ORANGE = "#3b6fb6", "#d9742b"


def graph() -> Figure:
    """The graph of x + x² at 3, with values going up and cotangents coming down."""
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    places = {"x": (0.5, 0.0), "x²": (0.85, 0.5), "x + x²": (0.5, 1.0)}
    values = {"x": 3, "x²": 9, "x + x²": 12}
    shares = {"x": "1 + 6 = 7", "x²": "1", "x + x²": "1"}
    edges = [("x", "x²", "2x · 1 = 6", 0.0), ("x²", "x + x²", "1 · 1 = 1", 0.0), ("x", "x + x²", "1 · 1 = 1", -0.35)]
    for start, end, share, bend in edges:
        style = {"shrinkA": 24, "shrinkB": 24, "lw": 1.6, "connectionstyle": f"arc3,rad={bend}"}
        axes.annotate("", places[end], places[start], arrowprops={"arrowstyle": "-|>", "color": BLUE, **style})
        middle = (np.array(places[start]) + np.array(places[end])) / 2
        where = middle + (np.array([0.05, 0.0]) if bend == 0 else np.array([-0.2, 0.0]))
        axes.text(*where, share, color=ORANGE, ha="left" if bend == 0 else "right", va="center", fontsize=11)
    for name, place in places.items():
        axes.plot(*place, "o", ms=42, mfc="white", mec="#666666")
        axes.text(*place, name, ha="center", va="center", fontsize=11)
        axes.text(place[0] - 0.1, place[1], f"{values[name]}", color=BLUE, ha="right", va="center", fontsize=13)
        axes.text(place[0] + 0.1, place[1], shares[name], color=ORANGE, ha="left", va="center", fontsize=13)
    axes.text(0.0, 1.0, "values go up", color=BLUE, fontsize=11, va="center")
    axes.text(0.0, 0.9, "shares come down", color=ORANGE, fontsize=11, va="center")
    axes.set(xlim=(-0.05, 1.15), ylim=(-0.2, 1.2))
    axes.axis("off")
    return figure


def memory() -> Figure:
    """The numbers that the tape holds while the gradient of 64 layers is computed, with and without segments."""
    layers = [lambda x: tanh(1.1 * x) for _ in range(64)]
    x = np.linspace(-1, 1, 1000)
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    for n_segments, label, colour in ((None, "every layer is kept", BLUE), (8, "8 segments, computed again", ORANGE)):
        with recorded_memory() as record:
            _, walk = vjp(lambda x, n=n_segments: sum_of(chain(layers, x, n)), x)
            walk(1.0)
        axes.plot(np.array(record.history) / 1000, color=colour, label=label, lw=1.6)
    axes.set(xlabel="changes of what is kept, one after the other", ylabel="thousand numbers kept", ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure

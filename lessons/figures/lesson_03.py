"""The figures of lesson 3*."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from autodiff import second
from autodiff.operations import sum_of, tanh
from autodiff.tape import recorded_memory

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#4c9a52", "#9a9a9a"
COLOURS = [BLUE, ORANGE, GREEN]


def ways() -> Figure:
    """Four rows, one for each way: the sweeps of one run, and what travels in each."""
    rows = [
        ("forward on forward", [("→", "$s$,  $\\partial_i s$,  $\\partial_j s$,  $\\partial_{ij} s$")]),
        ("forward on reverse", [("→", "$s$,  $\\dot s$"), ("←", "$r$,  $\\dot r$")]),
        ("reverse on forward", [("→", "$s$,  $\\dot s$"), ("←", "$b = r$,  $a = \\dot r$")]),
        (
            "reverse on reverse",
            [("→", "$s$"), ("←", "$r$"), ("→", "$\\bar r = \\dot s$"), ("←", "$\\bar s = \\dot r$")],
        ),
    ]
    figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
    y = 0.0
    for name, sweeps in rows:
        axes.text(-0.2, y - 0.5 * (len(sweeps) - 1), name, ha="right", va="center", fontsize=11)
        for direction, what in sweeps:
            ends, colour = ((0, 3), BLUE) if direction == "→" else ((3, 0), ORANGE)
            axes.annotate("", (ends[1], y), (ends[0], y), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2.0})
            axes.text(1.5, y + 0.08, what, ha="center", va="bottom", fontsize=11, color=colour)
            y -= 1.0
        y -= 0.5
    axes.text(0, 1.0, "input", ha="center", color="#555555")
    axes.text(3, 1.0, "result", ha="center", color="#555555")
    axes.set(xlim=(-1.7, 3.4), ylim=(y + 1.0, 1.4))
    axes.axis("off")
    return figure


def memory() -> Figure:
    """What the tape holds while one product H v is computed, in the three ways that use a tape."""
    random = np.random.default_rng(0)
    layers = [random.normal(size=(50, 50)) / 7 for _ in range(10)]
    x, v = random.normal(size=(2, 50))

    def network(x):
        for W in layers:
            x = tanh(W @ x)
        return sum_of(x * x)

    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    ways = (second.forward_on_reverse, second.reverse_on_forward, second.reverse_on_reverse)
    for way, colour in zip(ways, COLOURS, strict=True):
        with recorded_memory() as record:
            way(network, x, v)
        axes.plot(np.array(record.history) / 1000, color=colour, label=way.__name__.replace("_", " "), lw=1.6)
    axes.set(xlabel="changes of the tape, from the first value to the last", ylabel="thousand numbers", ylim=(0, 6.4))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    return figure

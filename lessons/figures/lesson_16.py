"""The figures of lesson 16."""

from __future__ import annotations

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from lesson_16 import ARROWS_N, NAMES, best_length, learned_lengths, majority, step_probabilities, way

BLUE, ORANGE, GREY, PALE = "#3b6fb6", "#d9742b", "#777777", "#c9c9c9"


def arrows() -> Figure:
    """Six names with their arrows, and the three that a question follows."""
    figure, axes = plt.subplots(figsize=(5.4, 4.0), layout="constrained")
    angles = [math.pi / 2 - 2 * math.pi * n / len(NAMES) for n in range(len(NAMES))]
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    followed, start = [0, *way(ARROWS_N, 0, 3)], 0
    steps = dict(pairwise(followed))
    for n, to in enumerate(ARROWS_N):
        is_followed = steps.get(n) == to
        style = {
            "arrowstyle": "-|>",
            "shrinkA": 15,
            "shrinkB": 15,
            "mutation_scale": 18,
            "lw": 2.4 if is_followed else 1.3,
        }
        axes.annotate("", places[to], places[n], arrowprops={**style, "color": ORANGE if is_followed else GREY})
    for n, (x, y) in enumerate(places):
        color = BLUE if n == start else ORANGE if n in followed else "white"
        ink = "white" if color != "white" else "black"
        axes.text(x, y, NAMES[n], ha="center", va="center", fontsize=14, color=ink,
                  bbox={"boxstyle": "circle", "facecolor": color, "edgecolor": GREY})  # fmt: skip
    said = " ".join(NAMES[n] for n in followed[1:-1])
    axes.text(1.45, 0.15, f"question: a 3\nthought: {said}\nanswer: {NAMES[followed[-1]]}", fontsize=12, va="center")
    axes.set(xlim=(-1.3, 3.0), ylim=(-1.3, 1.3), aspect="equal")
    axes.axis("off")
    return figure


def choosing() -> Figure:
    """How often the right answer wins a vote, for two models that are right equally often."""
    models = {
        "errors spread over five answers": (np.array([0.4] + [0.12] * 5), BLUE, "o"),
        "a favourite error": (np.array([0.4, 0.5, 0.1]), ORANGE, "D"),
    }
    figure, axes = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
    for name, (p_A, color, marker) in models.items():
        numbers = range(1, 8)
        axes.plot(
            numbers, [majority(p_A, n) for n in numbers], marker, ls="-", color=color, mfc="none", mew=1.8, label=name
        )
    axes.set(xlabel="answers that vote", ylabel="right answer wins", ylim=(0, 0.72))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def price() -> Figure:
    """The mean length that a policy has learned, by the price of a step; and the prediction."""
    p_NN, right = step_probabilities(ARROWS_N), way(ARROWS_N, 1, 4)
    p_right_K = [1 / 6, 1 / 6] + [float(np.linalg.matrix_power(p_NN, n)[1, right[n - 1]]) for n in (2, 3, 4)]
    threshold = (p_right_K[2] - p_right_K[0]) / 2
    prices = np.linspace(0.05, 0.55, 11)
    figure, axes = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
    fine = np.linspace(0.02, 0.58, 400)
    axes.plot(fine, [best_length(p_right_K, price) for price in fine], color=GREY, lw=1.4, label="predicted")
    for i, price in enumerate(prices):
        means = [learned_lengths(p_right_K, price, seed) @ np.arange(5) for seed in range(5)]
        label = "learned, five seeds" if i == 0 else None
        axes.plot([price] * 5, means, "o", color=BLUE, mfc="none", mew=1.5, label=label)
    axes.annotate(
        f"{threshold:.3f}", (threshold, 1), xytext=(8, 0), textcoords="offset points", color=GREY, va="center"
    )
    axes.set(xlabel="price of a step", ylabel="steps of a thought", ylim=(-0.15, 2.4))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure

"""The figures of lesson 9."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pellucid
from lesson_09 import causal_weights, rotate, softmax, split_heads

BLUE, ORANGE, GREY = "#3b6fb6", "#d9742b", "#777777"


def saturation() -> Figure:
    """The variance of scores and the largest of 16 weights, for widths from 2 to 1,024."""
    rng = np.random.default_rng(7)
    widths = 2 ** np.arange(1, 11)
    variances, largest, largest_scaled = [], [], []
    for K in widths:
        q, k = rng.standard_normal((400, 1, K)), rng.standard_normal((400, 16, K))
        scores = (q @ k.swapaxes(1, 2))[:, 0]
        variances.append(scores.var())
        largest.append(softmax(scores, axis=1).max(axis=1).mean())
        largest_scaled.append(softmax(scores / np.sqrt(K), axis=1).max(axis=1).mean())
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.loglog(widths, variances, "o-", color=ORANGE, base=2, label="q · k")
    left.loglog(widths, np.array(variances) / widths, "o-", color=BLUE, base=2, label="q · k / √K")
    left.set(xlabel="width K of a head", title="variance of a score")
    left.legend(frameon=False)
    right.semilogx(widths, largest, "o-", color=ORANGE, base=2)
    right.semilogx(widths, largest_scaled, "o-", color=BLUE, base=2)
    right.text(80, 0.79, "softmax(q · k)", color=ORANGE, ha="left", va="top")
    right.text(80, 0.28, "softmax(q · k / √K)", color=BLUE, ha="left", va="bottom")
    right.axhline(1 / 16, color=GREY, lw=1, ls=":")
    right.text(2, 1 / 16, "spread evenly over 16", color=GREY, va="bottom")
    right.set(xlabel="width K of a head", ylim=(0, 1.02), title="largest of 16 weights, on average")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xticks(widths[1::2], [f"{K:,}" for K in widths[1::2]])
        axes.minorticks_off()
    return figure


def _table(axes: Axes, values: np.ndarray, words: list[str], title: str) -> None:
    """A table of weights with the sum of each row beside it."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.1)
    n = len(words)
    for t, s in np.ndindex(values.shape):
        shade = values[t, s]
        axes.text(s, t, f"{shade:.2f}", ha="center", va="center", fontsize=9, color="white" if shade > 0.6 else "black")
    for t, total in enumerate(values.sum(axis=1)):
        axes.text(n - 0.3, t, f"{total:.2f}", ha="left", va="center", color=BLUE if np.isclose(total, 1) else ORANGE)
    axes.text(n - 0.3, -0.75, "sum", ha="left", va="center", color=GREY)
    axes.set_title(title, loc="left", fontsize=10.5, pad=16)
    axes.set_xticks(range(n), words)
    axes.set_yticks(range(n), words)
    axes.set_xlabel("key: the word that is read")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def causal() -> Figure:
    """The weights of five words, masked before the softmax and after it."""
    words = ["Bella", "saw", "Otto", "and", "she"]
    scores = np.array(
        [
            [1.0, 0.2, 0.8, 0.1, 1.2],
            [2.1, 0.4, 1.9, 0.0, 0.6],
            [0.9, 1.6, 0.7, 0.2, 0.4],
            [0.6, 1.5, 1.2, 0.1, 0.9],
            [2.6, 0.3, 0.9, 0.2, 0.5],
        ]
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    _table(left, causal_weights(scores), words, "masked before the softmax")
    _table(right, np.tril(softmax(scores, axis=1)), words, "masked after it: shares are lost")
    left.set_ylabel("query: the word that reads")
    return figure


def split() -> Figure:
    """What a cut into heads should do, and what a reshape alone does: numbers named by position and channel."""
    T, H, K = 3, 2, 3
    names = np.array([[10 * t + d for d in range(H * K)] for t in range(T)])
    right_way = split_heads(names[None].astype(float), H)[0].astype(int)
    wrong_way = names.reshape(H, T, K)
    figure, axes = plt.subplots(figsize=(9.6, 2.5), layout="constrained")
    gap = 0.5
    parts = [
        ("x: 3 positions of 6 numbers", 0.0, [(names, 0.0)]),
        ("cut, then the heads moved forward", 8.4, [(right_way[h], h * (K + gap)) for h in range(H)]),
        ("reshape alone", 16.8, [(wrong_way[h], h * (K + gap)) for h in range(H)]),
    ]
    colours = [["#dbe7f6", "#9dbfe8"], ["#fbe3d2", "#f3b98d"], ["#d9efe0", "#9ed3b1"]]  # by position, then by head
    for title, start, tables in parts:
        axes.text(start, 1.35, title, fontsize=10.5)
        for h, (values, left) in enumerate(tables):
            for row, col in np.ndindex(values.shape):
                t, d = divmod(int(values[row, col]), 10)
                place = (start + left + col, -row)
                axes.add_patch(plt.Rectangle(place, 0.94, 0.92, color=colours[t][d // K]))
                axes.text(place[0] + 0.47, place[1] + 0.46, f"{t}.{d}", ha="center", va="center", fontsize=9)
            if len(tables) > 1:
                axes.text(start + left + K / 2, -2.5, f"head {h}", ha="center", va="center", color=GREY)
    for t in range(T):
        axes.text(-0.2, -t + 0.46, f"position {t}", ha="right", va="center", color=GREY, fontsize=9)
    axes.set(xlim=(-2.4, 23.5), ylim=(-2.9, 2.0), aspect="equal")
    axes.axis("off")
    return figure


def clocks() -> Figure:
    """The hands of a head of width 8 at the positions 0, 2 and 30."""
    K, positions = 8, (0, 2, 30)
    hands = rotate(np.tile(np.repeat([1.0, 0.0], K // 2), (max(positions) + 1, 1)))  # all hands begin at (1, 0)
    figure, axes = plt.subplots(len(positions), K // 2, figsize=(7.6, 5.6), layout="constrained")
    for row, t in zip(axes, positions, strict=True):
        for i, clock in enumerate(row):
            clock.add_patch(plt.Circle((0, 0), 1, fill=False, color="#bbbbbb"))
            clock.plot([0, 1], [0, 0], color="#cccccc", lw=2)
            tip = hands[t, i], hands[t, i + K // 2]
            clock.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 2.2, "shrinkB": 0})
            clock.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", xticks=[], yticks=[])
            clock.spines[:].set_visible(False)
            angle = t * 10_000.0 ** (-2 * i / K)
            clock.set_xlabel(f"{angle:.4g} rad", color=GREY, fontsize=9)
            if t == 0:
                clock.set_title(f"clock {i}: {10_000.0 ** (-2 * i / K):g} rad per step", fontsize=9.5)
        row[0].set_ylabel(f"position {t}", fontsize=10.5)
    return figure


def distance() -> Figure:
    """The score of a query and an equal key against their distance, with 16 clocks and with one."""
    K, n = 32, 192
    turned = rotate(np.tile(np.repeat([1.0, 0.0], K // 2), (n, 1)))
    by_distance = turned @ turned[0] / (K // 2)
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    for i in (4, 8):
        one = turned[:, i] * turned[0, i] + turned[:, i + K // 2] * turned[0, i + K // 2]
        axes.plot(one, color="#bbbbbb", lw=1, label="clocks 4 and 8 alone" if i == 4 else None)
    axes.plot(by_distance, color=BLUE, lw=2, label="all 16 clocks of the demo's heads")
    axes.plot(np.cos(np.arange(n) * np.pi / (2 * n)), color=ORANGE, lw=1.6, label="one slow clock, as in N1")
    axes.set(xlabel="distance between query and key", ylabel="score / score at distance 0", xlim=(0, n - 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def looking_back() -> Figure:
    """Where the four heads of the demo's last layer look before a name that was said."""
    trace = pellucid.load("demo").trace(BEGINNING)
    weights = trace.attention[1, :, -1].numpy()
    words = ["start", *(text.strip() for text in trace.texts[1:])]
    figure, axes = plt.subplots(figsize=(10, 2.5), layout="constrained")
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(words)), words, rotation=90, fontsize=9)
    axes.set_yticks(range(len(weights)), [f"head 1.{h}" for h in range(len(weights))])
    axes.set_xticks(np.arange(len(words) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(weights) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e6e6e6", lw=0.8)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    for h, s in zip(*np.nonzero(weights > 0.2), strict=True):
        shade = weights[h, s]
        axes.text(
            s, h, f"{shade:.2f}"[1:], ha="center", va="center", fontsize=8, color="white" if shade > 0.5 else "black"
        )
    return figure


BEGINNING = (
    "The old people still tell of a poor but busy hedgehog called Otto. He lived under a heap of leaves with a painted "
    "kettle and a brown hat. It happened one warm day that"
)

"""The figures of lesson 13."""

from __future__ import annotations

import math
import random

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pellucid
from lesson_13 import (
    TreeOfFables,
    at_temperature,
    beam_search,
    draw,
    logits_and_truth,
    small_tree,
    softmax,
    top_k,
    top_p,
)
from pellucid.languages.fables import Fables

BLUE, ORANGE, GREY = "#3b6fb6", "#d9742b", "#777777"


def _stories(n: int) -> list[str]:
    """The first stories of the page."""
    fables, writer = Fables(24), random.Random(11)
    return [fables.write(writer) for _ in range(n)]


def _tables(stories: list[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    run, fables = pellucid.load("demo"), Fables(24)
    return [logits_and_truth(run, fables, story) for story in stories]


def _entropy(p: np.ndarray) -> float:
    return -float(np.sum(p[p > 0] * np.log(p[p > 0])))


def temperature() -> Figure:
    """Entropy and excess of the demo's tokens at temperatures from 0.3 to 2, on six stories."""
    rows = [(z, q) for logits, truth in _tables(_stories(6)) for z, q in zip(logits, truth, strict=True)]
    temperatures = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8])
    entropies, excesses = [], []
    for T in temperatures:
        shares = [at_temperature(z, T) for z, _ in rows]
        entropies.append(np.mean([_entropy(p) for p in shares]))
        pairs = zip(shares, (q for _, q in rows), strict=True)
        excesses.append(np.mean([np.sum(q[q > 0] * np.log(q[q > 0] / p[q > 0])) for p, q in pairs]))
    true_entropy = np.mean([_entropy(q) for _, q in rows])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.plot(temperatures, entropies, "o-", ms=4, color=BLUE)
    left.axhline(true_entropy, color=ORANGE, lw=1.4)
    left.text(0.3, true_entropy + 0.012, f"the grammar: {true_entropy:.3f}", color=ORANGE, va="bottom")
    left.text(1.57, 0.84, "the demo", color=BLUE, ha="right", va="bottom")
    left.set(title="entropy of a token (nats)", xlabel="temperature", ylim=(0.35, None))
    right.plot(temperatures, excesses, "o-", ms=4, color=BLUE)
    right.set(title="paid above the floor (nats per token)", xlabel="temperature", ylim=(0, None))
    for axes in (left, right):
        axes.axvline(1, color=GREY, lw=1, ls=":")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def line() -> Figure:
    """Pieces of a line for five tokens, their ends, and a point."""
    names = ["crow", "owl", "fox", "cat", "bear"]
    p, point = np.array([0.14, 0.08, 0.33, 0.25, 0.20]), 0.62
    ends = np.cumsum(p)
    hit = draw(p, point)
    figure, axes = plt.subplots(figsize=(9, 1.9), layout="constrained")
    for i, (name, share, end) in enumerate(zip(names, p, ends, strict=True)):
        colour = ORANGE if i == hit else ("#9dbfe8" if i % 2 else "#c9dcf3")
        axes.barh(0, share, left=end - share, height=0.5, color=colour, edgecolor="white")
        axes.text(end - share / 2, 0, f"{name}\n{share:.2f}", ha="center", va="center", fontsize=10)
        axes.text(end, -0.33, f"{end:.2f}", ha="center", va="top", color=GREY, fontsize=9)
    axes.text(0, -0.33, "0", ha="center", va="top", color=GREY, fontsize=9)
    axes.annotate(
        f"the point {point}",
        (point, 0.25),
        (point, 0.72),
        ha="center",
        arrowprops={"arrowstyle": "-|>", "color": "black"},
    )
    axes.text(-0.02, -0.62, "ends: cumsum(p)", color=GREY, fontsize=9, va="center")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.75, 0.95))
    axes.axis("off")
    return figure


def _bars(axes: Axes, shown: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
    """Probabilities of some tokens on a logarithmic scale: possible, impossible, and the truth as marks."""
    x = np.arange(len(shown))
    axes.bar(x, p[shown], color=np.where(q[shown] > 0, BLUE, ORANGE), width=0.9)
    is_true = q[shown] > 0
    axes.plot(x[is_true], q[shown][is_true], "_", color="black", ms=6, mew=1.4)
    axes.set(yscale="log", ylim=(3e-6, 1.3), xlim=(-1.5, len(shown)), xticks=[])
    axes.spines[["top", "right"]].set_visible(False)
    impossible, lost = p[q == 0].sum(), q[p == 0].sum()
    axes.text(0.98, 0.97, f"impossible {impossible:.2%}", color=ORANGE, ha="right", va="top", transform=axes.transAxes)
    if lost > 0:
        axes.text(0.98, 0.86, f"cut off {lost:.1%}", ha="right", va="top", transform=axes.transAxes)


def cuts() -> Figure:
    """What four ways to write make of the demo's probabilities, at a place with many options and at one with few."""
    run = pellucid.load("demo")
    story = _stories(6)[5]
    [(logits, truth)] = _tables([story])
    ids = run.tokenizer.encode(story)
    n_possible = np.count_nonzero(truth, axis=1)
    leak = np.array([softmax(z)[q == 0].sum() for z, q in zip(logits, truth, strict=True)])
    few = int(np.argmax(np.where(n_possible == 4, leak, 0)))
    ways = {
        "the demo itself": softmax,
        "temperature 0.5": lambda z: at_temperature(z, 0.5),
        "top-k 20": lambda z: top_k(softmax(z), 20),
        "top-p 0.9": lambda z: top_p(softmax(z), 0.9),
        "min-p 0.1": lambda z: _min_p(softmax(z), 0.1),
    }
    figure, axes = plt.subplots(2, len(ways), figsize=(13, 5.2), layout="constrained", sharey=True)
    for row, place in zip(axes, (51, few), strict=True):
        shown = np.argsort(-logits[place])[:60]
        for panel, (name, way) in zip(row, ways.items(), strict=True):
            _bars(panel, shown, way(logits[place]), truth[place])
            if place == 51:
                panel.set_title(name, fontsize=11)
        before = run.tokenizer.decode(ids[:place])[-34:]
        row[0].set_ylabel(
            f"…{before[before.index(' ') + 1 :]} ___\n{n_possible[place]} tokens are possible", fontsize=9.5
        )
    figure.supxlabel("the demo's 60 likeliest tokens", fontsize=10)
    return figure


def _min_p(p: np.ndarray, share: float) -> np.ndarray:
    kept = np.where(p >= share * p.max(), p, 0.0)
    return kept / kept.sum()


def cache() -> Figure:
    """The positions computed for 8 new tokens after 5, without a cache and with it."""
    P, N = 5, 8
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained", sharey=True)
    for axes, has_cache in zip(panels, (False, True), strict=True):
        n_computed = 0
        for step in range(N):
            for position in range(P + step):
                is_computed = not has_cache or step == 0 or position == P + step - 1
                n_computed += is_computed
                axes.add_patch(
                    plt.Rectangle(
                        (position, step),
                        0.9,
                        0.85,
                        facecolor=BLUE if is_computed else "none",
                        edgecolor=BLUE if is_computed else "#c9dcf3",
                        alpha=0.55 if is_computed and position < P else 1,
                    )
                )
            axes.text(P + step + 0.45, step + 0.42, "?", ha="center", va="center", color=ORANGE, weight="bold")
        name = "with a cache" if has_cache else "without a cache"
        axes.set_title(f"{name}: {n_computed} positions", fontsize=11)
        axes.set(xlim=(-0.3, P + N + 0.2), ylim=(N, -0.2), yticks=np.arange(N) + 0.42, yticklabels=range(1, N + 1))
        axes.set_xticks([P / 2, P + N / 2], ["prompt", "new tokens"])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel("new token")
    return figure


def tree() -> Figure:
    """The notes' tree, with the two paths that the page tells of."""
    found = [text for text, _ in beam_search(small_tree, 2)]
    told = {text[:i] for text in found for i in range(1, 5)}
    levels = [[()], [("A",), ("B",), ("C",), (".",)]]
    for parents in ([("A",)], [("A", "B"), ("A", "C")], [("A", "B", "C"), ("A", "C", "B")]):
        levels.append([(*parent, token) for parent in parents for token in small_tree(parent)])
    heights = {}
    for texts in levels:
        for i, text in enumerate(texts):
            heights[text] = (len(texts) - 1) / 2 - i
    figure, axes = plt.subplots(figsize=(10, 4.6), layout="constrained")
    for depth, texts in enumerate(levels):
        for text in texts:
            p = math.prod(small_tree(text[:i])[text[i]] for i in range(len(text)))
            is_told = text in told or not text
            colour = (ORANGE if text[:2] == ("A", "C") else BLUE) if is_told else "#aaaaaa"
            if text:
                parent = heights[text[:-1]]
                axes.plot(
                    [depth - 1 + 0.17, depth - 0.17],
                    [parent, heights[text]],
                    color=colour,
                    lw=2 if is_told else 0.8,
                    zorder=1,
                )
                share = 0.68  # of the way to the child
                axes.text(
                    depth - 0.83 + 0.66 * share,
                    parent + share * (heights[text] - parent),
                    f"{small_tree(text[:-1])[text[-1]]:.2g}",
                    color=colour,
                    fontsize=9,
                    ha="center",
                    va="center",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
                )
            label = "".join(text) or "start"
            axes.text(
                depth,
                heights[text],
                label if not text else f"{label}\n{p:.3g}",
                ha="center",
                va="center",
                fontsize=9.5,
                color="black" if is_told else GREY,
            )
    for depth, name in enumerate(["", "first token", "second", "third", "fourth"]):
        axes.text(depth, 4.3, name, ha="center", color=GREY)
    axes.set(xlim=(-0.4, 4.4), ylim=(-4.0, 4.6))
    axes.axis("off")
    return figure


def typical() -> Figure:
    """How likely 3,000 drawn fables are, and how often they take the likeliest option; and those of beam search."""
    fables, writer = Fables(24), random.Random(1)
    log_p, shares = [], []
    for _ in range(3000):
        steps = fables.read(fables.write(writer))
        log_p.append(sum(math.log(fork.probability(i)) for fork, i in steps))
        shares.append(_share(steps))
    walk = TreeOfFables(fables)
    found = {n: beam_search(walk, n)[0] for n in (1, 2, 3000)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.7), layout="constrained")
    left.hist(log_p, bins=40, color="#9dbfe8")
    top = 1.35 * left.get_ylim()[1]
    mean = -fables.entropy_nats
    left.axvline(mean, color=BLUE, lw=1.5)
    left.text(mean - 1, top, f"mean\n−{-mean:.1f}", color=BLUE, ha="right", va="top")
    right.hist(shares, bins=np.arange(0, 1.02, 0.04), color="#9dbfe8")
    right_top = 1.35 * right.get_ylim()[1]
    for height, (n, (choices, nats)) in zip((1, 0.92, 0.84), found.items(), strict=True):
        left.axvline(nats, ymax=height, color=ORANGE, lw=1.5)
        name = f"{n:,} beam{'s' if n > 1 else ''}"
        is_last = n == max(found)
        left.text(
            nats + (-0.8 if is_last else 0.8),
            height * top,
            f"{name}: −{-nats:.1f}",
            color=ORANGE,
            va="top",
            ha="right" if is_last else "left",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
        share = _share(fables.read(walk.text(choices)))
        right.axvline(share, ymax=height, color=ORANGE, lw=1.5)
        right.text(share - 0.015, height * right_top, name, color=ORANGE, ha="right", va="top")
    left.set(title="ln p of 3,000 drawn fables", xlabel="nats", ylim=(0, top))
    right.set(title="share of choices with the likeliest option", xlim=(0, 1.02), ylim=(0, right_top))
    for axes in (left, right):
        axes.set_yticks([])
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _share(steps) -> float:
    return np.mean([fork.probability(i) == max(map(fork.probability, fork.allowed())) for fork, i in steps])

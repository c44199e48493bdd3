"""The figures of lesson 0."""

from __future__ import annotations

import random

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lesson_00 import (
    THREE_RULES,
    cost_of_wrong_guesses,
    entropy,
    first_words,
    floor_of_rules,
    mean_and_error,
    next_words,
    surprise,
    words_with_probabilities,
)
from pellucid.languages.fables import Fables

BLUE, ORANGE, GREY = "#3b6fb6", "#d9742b", "#666666"
HEAT = LinearSegmentedColormap.from_list("surprise", ["#ffffff", "#f6c79c", ORANGE])


def curve() -> Figure:
    """The surprise at every probability, in nats and in bits."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    p = np.linspace(0.005, 1, 400)
    axes.plot(p, -np.log(p), color=BLUE, lw=1.8)
    marks = {0.01: "one word of a hundred", 1 / 6: "a six on a die", 0.5: "heads on a coin", 1.0: "certain"}
    for x, name in marks.items():
        axes.plot(x, surprise(x), "o", color=ORANGE, ms=6, clip_on=False)
        right = x == 1.0
        axes.annotate(
            f"{name}: {surprise(x):.2f}",
            (x, surprise(x)),
            xytext=(0, 22) if right else (9, 8),
            textcoords="offset points",
            ha="right" if right else "left",
            color=ORANGE,
        )
    axes.set(xlabel="probability of what came", ylabel="surprise (nats)", xlim=(0, 1), ylim=(0, 5.3))
    axes.spines[["top"]].set_visible(False)
    bits = axes.secondary_yaxis("right", functions=(lambda nats: nats / np.log(2), lambda bits: bits * np.log(2)))
    bits.set_ylabel("in bits")
    return figure


def story() -> Figure:
    """A fable whose words are the darker, the more they surprise even somebody who knows the grammar."""
    fables = Fables(24)
    text = fables.write(random.Random(0))
    width = 98
    x, y = 0, 0
    figure, axes = plt.subplots(figsize=(8.4, 3.3), layout="constrained")
    for word, p in words_with_probabilities(fables, text):
        if x + len(word) > width or word == "Moral:":
            x, y = 0, y + 1
        axes.add_patch(Rectangle((x - 0.4, y - 0.42), len(word) + 0.8, 0.84, color=HEAT(min(surprise(p), 4) / 4), lw=0))
        axes.text(x, y, word, family="monospace", fontsize=9.4, va="center_baseline")
        x += len(word) + 1
    axes.set(xlim=(-1, width + 1), ylim=(y + 0.7, -0.7))
    axes.axis("off")
    bar = figure.colorbar(plt.cm.ScalarMappable(plt.Normalize(0, 4), HEAT), ax=axes, location="bottom", aspect=50)
    bar.set_ticks(range(5), labels=["0 (certain)", "1", "2", "3", "4 nats"])
    bar.outline.set_visible(False)
    return figure


def choices() -> Figure:
    """The entropy of each word of a fable before it comes, and its surprise when it has come."""
    fables = Fables(24)
    text = fables.write(random.Random(0))
    words = words_with_probabilities(fables, text)
    nats = [entropy(list(next_words(fables, first_words(text, n)).values())) for n in range(len(words))]
    surprises = [surprise(p) for _, p in words]
    figure, axes = plt.subplots(figsize=(8.6, 3.5), layout="constrained")
    axes.bar(range(1, len(words) + 1), nats, width=0.85, color=BLUE, label=f"entropy before it comes: {sum(nats):.1f}")
    paid = [(n, each) for n, each in enumerate(surprises, 1) if each > 1e-6]
    axes.plot(*zip(*paid, strict=True), "o", color=ORANGE, ms=4, label=f"surprise when it has: {sum(surprises):.1f}")
    for n, (word, _) in enumerate(words, 1):
        if surprises[n - 1] > 3.2:
            axes.text(n - 1, surprises[n - 1], word.strip(",."), ha="right", va="center", color=ORANGE)
    axes.set(xlabel="word of the fable", ylabel="nats", xlim=(-3, len(words) + 1), ylim=(0, 4.6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, reverse=True, title="nats at each word, and in all", alignment="left")
    return figure


def guesses() -> Figure:
    """What guessers of a bent coin pay: least if they announce the truth."""
    truth = 0.8
    figure, axes = plt.subplots(figsize=(6.6, 3.8), layout="constrained")
    q = np.linspace(0.03, 0.997, 400)
    floor = entropy([truth, 1 - truth])
    paid = [floor + cost_of_wrong_guesses([truth, 1 - truth], [x, 1 - x]) for x in q]
    axes.plot(q, paid, color=BLUE, lw=1.8)
    axes.axhline(floor, color="black", ls=(0, (4, 3)), lw=1.2)
    axes.text(0.01, floor - 0.05, f"entropy: {floor:.3f} nats", va="top")
    axes.plot(truth, floor, "o", color=BLUE, ms=7)
    axes.annotate("the truth", (truth, floor), (0, -8), textcoords="offset points", ha="center", va="top", color=BLUE)
    for x in (0.4, 0.98):
        cost = cost_of_wrong_guesses([truth, 1 - truth], [x, 1 - x])
        axes.annotate(
            "",
            (x, floor + cost),
            (x, floor),
            arrowprops={"arrowstyle": "<->", "color": ORANGE, "shrinkA": 0, "shrinkB": 0},
        )
        place, side = ((x + 0.015, floor + cost * 0.45), "left") if x < truth else ((x - 0.01, floor + cost), "right")
        axes.text(*place, f"KL {cost:.2f}", ha=side, va="center", color=ORANGE)
    axes.set(xlabel="announced probability of heads", ylabel="paid per throw (nats)", xlim=(0, 1), ylim=(0.3, 1.6))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def rules() -> Figure:
    """The three rules as a tree of choices, with the entropy of each choice and the chance to get there."""
    figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    heights = {"the fox": 5.5, "the owl": 3.5, "the hare": 1.5}

    def branch(start: tuple[float, float], end: tuple[float, float], p: float) -> None:
        axes.plot(
            [start[0], end[0]], [start[1], end[1]], color=GREY, lw=0.8 + 3.0 * p, solid_capstyle="round", zorder=1
        )
        x, y = (0.55 * start[0] + 0.45 * end[0], 0.55 * start[1] + 0.45 * end[1])
        axes.text(
            x, y, f"{p:.2g}", color=GREY, ha="center", va="center", fontsize=9, bbox={"fc": "white", "lw": 0, "pad": 1}
        )

    def choice(place: tuple[float, float], name: str) -> None:
        weights = [weight for weight, _ in THREE_RULES[name]]
        nats = entropy([weight / sum(weights) for weight in weights])
        axes.plot(*place, "o", ms=15, mfc=HEAT(0.5), mec=ORANGE, zorder=2)
        axes.text(
            place[0], place[1] + 0.42, f"{name}\n{nats:.3f} nats", color=ORANGE, ha="center", va="bottom", fontsize=9
        )

    choice((0, 3), "fable")
    branch((0, 3), (1, 3.5), 0.75)
    branch((0, 3), (3, -0.4), 0.25)
    choice((1, 3.5), "animal")
    for (weight, _), (text, y) in zip(THREE_RULES["animal"], heights.items(), strict=True):
        branch((1, 3.5), (2, y), weight / 4)
        choice((2, y), "deed")
        for deed, shift in (("slept", 0.5), ("sang", -0.5)):
            branch((2, y), (3, y + shift), 0.5)
            p = 0.75 * weight / 4 / 2
            axes.text(3.08, y + shift, f"{text} {deed}", va="center")
            axes.text(4.3, y + shift, f"{p:.3f}", va="center", ha="right", color=GREY)
    axes.text(3.08, -0.4, "nothing happened", va="center")
    axes.text(4.3, -0.4, "0.250", va="center", ha="right", color=GREY)
    axes.text(4.3, 6.7, "probability", va="center", ha="right", color=GREY, fontsize=9)
    axes.set(xlim=(-0.35, 4.4), ylim=(-0.8, 7.0), title=f"All in all {floor_of_rules(THREE_RULES):.3f} nats per fable")
    axes.axis("off")
    return figure


def stories() -> Figure:
    """The surprise of each of 200 fables, their mean, and the floor."""
    fables = Fables(24)
    rng = random.Random(1)
    nats = [-fables.log_probability(fables.write(rng)) for _ in range(200)]
    mean, error = mean_and_error(nats)
    figure, axes = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    axes.hist(nats, bins=24, color="#b9cbe6", edgecolor="white")
    axes.axvspan(mean - error, mean + error, color=ORANGE, alpha=0.55, lw=0)
    axes.axvline(fables.entropy_nats, color="black", ls=(0, (4, 3)), lw=1.3)
    top = axes.get_ylim()[1]
    axes.text(fables.entropy_nats - 1.3, top * 1.04, f"floor {fables.entropy_nats:.2f}", ha="right", va="center")
    axes.text(mean + error + 0.8, top * 1.04, f"mean {mean:.2f} ± {error:.2f}", color=ORANGE, va="center")
    axes.set(xlabel="surprise of a whole fable (nats)", ylabel="fables of 200", ylim=(0, top * 1.1))
    axes.spines[["top", "right"]].set_visible(False)
    return figure

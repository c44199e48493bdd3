"""The figures of lesson 7."""

from __future__ import annotations

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import pellucid
from lesson_07 import (
    MOVED,
    count_pairs,
    fit_table,
    gradient_of_cross_entropy,
    meetings,
    mlp_loss,
    new_parameters,
    probabilities_of,
    train,
    windows,
)
from pellucid.corpora.drawn import Drawn
from pellucid.languages.fables import Fables

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#4a9a62", "#777777"
BIGRAM_FLOOR, FLOOR = 2.351, 0.510  # scripts/measure.py ngram_floors, docs/family.md


@cache
def language():
    return meetings()


@cache
def trained(n_ctx: int, n_steps: int):
    """A network for windows of n_ctx words, trained on 2,000 texts, and its loss on 1,000 others."""
    parameters = new_parameters(len(language().words), n_ctx, d=8, n_hidden=32)
    train(parameters, *windows(language().write(2000, seed=0), n_ctx), n_steps)
    return parameters, mlp_loss(parameters, *windows(language().write(1000, seed=1), n_ctx)).value


def random_neurons(d: int, n: int) -> tuple[float, float]:
    """The error of the mean of n neurons cos(v · x), d inputs, against exp(-|x|²/2): measured, and predicted."""
    random = np.random.default_rng(0)
    x = random.normal(size=(100, d)) / np.sqrt(d)
    squares = (x**2).sum(axis=1)
    networks = np.array([np.cos(x @ random.normal(size=(d, n))).mean(axis=1) for _ in range(200)])
    variances = (1 + np.exp(-2 * squares)) / 2 - np.exp(-squares)
    return ((networks - np.exp(-squares / 2)) ** 2).mean() ** 0.5, (variances.mean() / n) ** 0.5


def width() -> Figure:
    """The error of networks of random neurons against their number: slope -1/2 with any number of inputs."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    numbers = [10, 30, 100, 300, 1000]
    for d, colour, marker in ((1, BLUE, "o"), (10, ORANGE, "s"), (100, GREEN, "^")):
        measured, predicted = zip(*(random_neurons(d, n) for n in numbers), strict=True)
        axes.loglog(numbers, measured, marker, color=colour, label=f"{d} input{'s' if d > 1 else ''}")
        axes.loglog(numbers, predicted, color=colour, linewidth=1)
    axes.annotate("lines: predicted, slope −1/2", (110, 0.07), color=GREY)
    axes.set_xlabel("random neurons n")
    axes.set_ylabel("error")
    axes.legend(frameon=False, loc="lower left")
    return figure


def counting() -> Figure:
    """The loss of counted bigrams on held-out fables, against the number of fables that were counted."""
    corpus = Drawn(Fables(24), size=3400, seed=0, validation_fraction=200 / 3400)
    tokenizer = pellucid.load("demo").tokenizer
    training, held_out = (
        [[1 + token for token in tokenizer.encode(text)] for text in corpus.documents(split)]
        for split in ("train", "validation")
    )
    n_words = 1 + tokenizer.vocab_size
    held_out_pairs = count_pairs(held_out, n_words)
    came = held_out_pairs > 0
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    sizes = [50, 100, 200, 400, 800, 1600, 3200]
    for alpha, label, colour in ((1.0, "α = 1", ORANGE), (0.1, "α = 0.1", GREEN), (1 / n_words, "α = 1/V", BLUE)):
        losses = []
        for size in sizes:
            p = probabilities_of(count_pairs(training[:size], n_words), alpha)
            losses.append(-(held_out_pairs[came] * np.log(p[came])).sum() / held_out_pairs.sum())
        axes.plot(sizes, losses, "o-", color=colour, ms=4, lw=1.6)
        axes.text(sizes[-1] * 1.12, losses[-1] + (0.0 if alpha < 0.01 else 0.2), label, color=colour, va="center")
    for floor, label in ((BIGRAM_FLOOR, "floor of all bigrams"), (FLOOR, "floor of the text")):
        axes.plot((40, 3200), (floor, floor), color=GREY, lw=1, ls="--")
        axes.text(sizes[0], floor - 0.08, label, color=GREY, va="top")
    axes.annotate("", (280, FLOOR), (280, BIGRAM_FLOOR), arrowprops={"arrowstyle": "<->", "color": GREY})
    axes.text(300, (FLOOR + BIGRAM_FLOOR) / 2, "what the words before the last one are worth", color=GREY, va="center")
    axes.set(xscale="log", xlabel="fables counted", ylabel="loss on other fables (nats per token)", ylim=(0, 7))
    axes.set(xlim=(40, 5400), xticks=sizes, xticklabels=[f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def gradient() -> Figure:
    """A softmax over five words, and the gradient of the loss by their logits when the second one came."""
    words, z = ["ran", "met", "said", ".", "the"], np.array([[1.0, 0.4, 0.6, -0.3, -1.2]])
    p = np.exp(z) / np.exp(z).sum()
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained", sharey=True)
    slopes = gradient_of_cross_entropy(z, np.array([1]))[0]
    for ax, heights, title in (
        (axes[0], p[0], "the model's probabilities p"),
        (axes[1], slopes, "gradient: p − 1 at “met”"),
    ):
        colours = [ORANGE if word == "met" else BLUE for word in words]
        ax.bar(words, heights, color=colours, width=0.6)
        ax.axhline(0, color=GREY, lw=0.8)
        for i, height in enumerate(heights):
            offset = 0.03 if height >= 0 else -0.03
            ax.text(
                i,
                height + offset,
                f"{height:.2f}".replace("-", "−"),
                ha="center",
                va="bottom" if height >= 0 else "top",
                fontsize=9,
            )
        ax.set_title(title, fontsize=11)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax.tick_params(axis="x", length=0)
    axes[0].set(ylim=(-0.95, 0.5))
    return figure


def ranks() -> Figure:
    """Tables of low rank, fitted to the pairs of few and of many texts: their exact loss on all texts."""
    expected = language().expected_pairs()
    tried = [1, 2, 3, 4, 8, len(expected)]
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    for n_texts, n_seeds, label, colour in (
        (50, 3, "50 texts\n(mean of 3 draws)", ORANGE),
        (2000, 1, "2,000 texts", BLUE),
    ):
        losses = np.zeros((n_seeds, len(tried)))
        for seed in range(n_seeds):
            counts = count_pairs(language().write(n_texts, seed), len(expected))
            for i, rank in enumerate(tried):
                log_p = fit_table(counts, rank, seed=seed)
                losses[seed, i] = -(expected * log_p).sum() / expected.sum()
        mean = losses.mean(axis=0)
        axes.plot(range(len(tried)), mean, "o-", color=colour, ms=4, lw=1.6)
        axes.plot(int(mean.argmin()), mean.min(), "o", ms=11, mfc="none", mec=colour)
        axes.text(len(tried) - 0.85, mean[-1] + 0.003, label, color=colour, va="bottom")
    axes.axhline(language().floor(1), color=GREY, lw=1, ls="--")
    axes.text(-0.2, language().floor(1) - 0.004, "floor of all bigrams", color=GREY, va="top")
    axes.text(0.8, 1.095, "rank 1: ≈ 2", color=GREY, va="top", ha="right")
    axes.set(xticks=range(len(tried)), xticklabels=tried, xlabel="rank", ylabel="loss on all texts (nats per word)")
    axes.set(ylim=(0.93, 1.1), xlim=(-0.3, len(tried) + 0.1))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def network() -> Figure:
    """The network with a shared embedding: three words in, a probability for each word out."""
    figure, axes = plt.subplots(figsize=(8.4, 3.9), layout="constrained")

    def box(x, y, width, text, colour):
        style = {"boxstyle": "round,pad=0.02,rounding_size=0.06", "lw": 1.4}
        axes.add_patch(FancyBboxPatch((x - width / 2, y - 0.2), width, 0.4, fc="white", ec=colour, **style))
        axes.text(x, y, text, ha="center", va="center", fontsize=10)

    def arrow(start, end, text="", colour=GREY):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.3})
        axes.text(start[0] + 0.12, (start[1] + end[1]) / 2, text, color=colour, va="center", fontsize=10)

    for x, word in zip((1, 2.6, 4.2), (".", "the", "fox"), strict=True):
        box(x, 0, 1.0, word, GREY)
        arrow((x, 0.24), (x, 0.74), "C", BLUE)
        box(x, 1, 1.4, "d numbers", BLUE)
        arrow((x, 1.24), (2.6 + (x - 2.6) * 0.6, 1.76))
    box(2.6, 2, 4.0, "x: all of them, side by side", GREY)
    arrow((4.7, 2), (6.3, 2))
    axes.text(5.5, 2.06, "$W_1$, tanh", color=GREY, ha="center", va="bottom", fontsize=10)
    box(7.3, 2, 1.9, "hidden layer", GREY)
    arrow((7.3, 1.76), (7.3, 1.26), "$W_2$")
    box(7.3, 1, 1.4, "d numbers", BLUE)
    arrow((7.3, 0.74), (7.3, 0.26), "the same C: products with its rows", BLUE)
    box(7.3, 0, 2.6, "a logit for each word", GREY)
    arrow((8.7, 0), (9.9, 0))
    axes.text(9.3, 0.06, "softmax", color=GREY, ha="center", va="bottom", fontsize=10)
    box(10.7, 0, 1.5, "p(next)", ORANGE)
    axes.set(xlim=(0.2, 11.6), ylim=(-0.3, 2.3))
    axes.axis("off")
    return figure


def contexts() -> Figure:
    """The floor of all models that see the last n words, exactly, and what our networks reach."""
    seen = range(1, 16)
    floors = [language().floor(n) for n in seen]
    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    axes.step(seen, floors, where="mid", color=BLUE, lw=1.8)
    axes.text(5.2, floors[4] + 0.03, "floor of all models that see n words", color=BLUE)
    reached = [float(trained(n, 1500 if n == 3 else 700)[1]) for n in (1, 2, 3, 4)]
    axes.plot([1, 2, 3, 4], reached, "o", color=ORANGE)
    axes.text(1.3, reached[0] + 0.01, "our networks, on other texts", color=ORANGE, va="bottom")
    axes.annotate(
        "the hero comes\ninto view", (12.5, (floors[11] + floors[13]) / 2), (9.2, 0.4),
        color=GREY, ha="center", va="center", arrowprops={"arrowstyle": "-|>", "color": GREY},
    )  # fmt: skip
    axes.set(xlabel="words seen, n", ylabel="nats per word", xticks=list(seen), ylim=(0.3, 1.05))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def embeddings() -> Figure:
    """What the network has learned of words: which embeddings point the same way, and how W_1 sees the animals."""
    parameters, _ = trained(3, 1500)
    C, words = parameters["C"].value, language().words
    groups = ["sly shy old proud", "said cried", "yes no welcome", " ".join(sorted(MOVED, key=MOVED.__getitem__))]
    shown = [word for group in groups for word in group.split()]
    rows = [words.index(word) for word in shown]
    directions = C[rows] / np.linalg.norm(C[rows], axis=1, keepdims=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained", width_ratios=[1.15, 1])
    image = left.imshow(directions @ directions.T, cmap="RdBu_r", vmin=-1, vmax=1)
    left.set_xticks(range(len(shown)), shown, rotation=90, fontsize=9)
    left.set_yticks(range(len(shown)), shown, fontsize=9)
    left.tick_params(length=0)
    left.spines[:].set_visible(False)
    figure.colorbar(image, ax=left, shrink=0.7, label="cosine")
    left.set_title("do two embeddings point the same way?", fontsize=10.5)

    animals = [words.index(animal) for animal in MOVED]
    last_place = parameters["W_1"].value[-C.shape[1] :]
    seen = (C[animals] - C[animals].mean(axis=0)) @ last_place
    flat = seen @ np.linalg.svd(seen)[2][:2].T
    colours = {"ran": ORANGE, "flew": BLUE, "swam": GREEN}
    for (animal, moved), place in zip(MOVED.items(), flat, strict=True):
        right.plot(*place, "o", color=colours[moved], ms=6)
        right.annotate(animal, place, (6, 4), textcoords="offset points", color=colours[moved], fontsize=10)
    for moved, colour in colours.items():
        right.plot([], [], "o", color=colour, label=f"… {moved} away")
    right.legend(frameon=False, loc="lower left", fontsize=9)
    right.set(xticks=[], yticks=[])
    right.margins(0.18)
    right.set_title("the animals, as the hidden layer sees them", fontsize=10.5)
    return figure

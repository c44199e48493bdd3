"""The figures of lesson 2."""

from __future__ import annotations

import math
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

import pellucid
from lesson_02 import surprise_of_targets
from lesson_02 import tiles as cut
from pellucid.data.truth import next_token_distributions

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#4c9a52", "#9a9a9a"


def tiles() -> Figure:
    """A picture whose numbers have the colour of the tile in which they land: by reshape alone, and rightly."""
    picture = np.arange(24).reshape(4, 6)
    ways = {
        "reshape(2, 2, 2, 3) alone": picture.reshape(2, 2, 2, 3),
        "cut, then transpose(0, 2, 1, 3)": cut(picture, 2, 3),
    }
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
    for axes, (title, tiled) in zip(panels, ways.items(), strict=True):
        for index, number in np.ndenumerate(tiled):
            row, column = divmod(int(number), 6)
            colour = (BLUE, ORANGE, GREEN, GREY)[2 * index[0] + index[1]]
            axes.add_patch(plt.Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, color=colour))
            axes.text(column, row, str(number), ha="center", va="center", color="white", fontsize=11)
        axes.set(xlim=(-0.6, 5.6), ylim=(3.6, -0.6), aspect="equal", title=title)
        axes.axis("off")
    return figure


def paired() -> Figure:
    """The demo's mean surprise on each of 40 fables against the grammar's, and the differences of the two."""
    demo = pellucid.load("demo")
    corpus = demo.trained.corpus()
    points = []
    for text in islice(corpus.documents("validation"), 40):
        ids = torch.tensor([demo.tokenizer.end_of_text, *demo.tokenizer.encode(text), demo.tokenizer.end_of_text])
        with torch.no_grad():
            logits = demo.model(ids[None, :-1]).double()
        truths = next_token_distributions(corpus.language, demo.tokenizer, text)
        true = [-math.log(truth[token]) for truth, token in zip(truths, ids[1:].tolist(), strict=True)]
        points.append((sum(true) / len(true), surprise_of_targets(logits, ids[None, 1:]).mean().item()))
    grammar, model = np.array(points).T
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained")
    left.plot(*[[0.25, 0.85]] * 2, color=GREY, lw=1.0)
    left.plot(grammar, model, "o", ms=4, color=BLUE)
    left.set(xlabel="surprise of the grammar (nats per token)", ylabel="surprise of the demo", aspect="equal")
    right.axhline(0.0, color=GREY, lw=1.0)
    right.plot(grammar, model - grammar, "o", ms=4, color=ORANGE)
    right.set(xlabel="surprise of the grammar (nats per token)", ylabel="demo - grammar")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure

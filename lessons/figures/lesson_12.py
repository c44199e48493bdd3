"""The figures of lesson 12."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pellucid
from lesson_12 import attention_flow_step, contributions, euler, order_of_error, tokens_on_the_sphere, turning
from pellucid.data.truth import next_token_distributions
from pellucid.inspection.knock_out import held_out_documents

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#3f8f5f", "#777777"
POINTS = ("embedding", "attention 0", "feed-forward 0", "attention 1", "feed-forward 1")
TEXT = (
    "The old people still tell of a poor but busy hedgehog called Otto. He lived under a heap of leaves with a painted "
    "kettle and a brown hat. It happened one warm day that"
)

load = cache(pellucid.load)


def shares() -> Figure:
    """What each part adds to the logits of three words, where the name must come back."""
    run = load("demo")
    trace = run.trace(TEXT)
    parts_ND = np.concatenate([trace.residuals[:1], trace.outputs])[:, -1].astype(float)
    gain_D = run.model.final_norm.weight.detach().numpy()
    embedding_VD = run.model.embeddings.embedding_VD.detach().numpy()
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.7), sharex=True, sharey=True, layout="constrained")
    for axes, word in zip(panels, (" Otto", " Basil", " that"), strict=True):
        [token] = run.tokenizer.encode(word)
        logits = contributions(parts_ND, gain_D, embedding_VD[token])
        axes.barh(range(len(POINTS)), logits, color=[BLUE if share > 0 else ORANGE for share in logits], height=0.66)
        for row, share in enumerate(logits):
            share = round(share, 1) + 0.0  # no "-0.0"
            side = "left" if share >= 0 else "right"
            axes.text(
                share + (0.4 if share >= 0 else -0.4),
                row,
                f"{share:+.1f}".replace("-", "−"),
                ha=side,
                va="center",
                fontsize=9,
            )
        axes.axvline(0, color="black", lw=0.8)
        axes.set_title(f"“{word}”: the sum is {logits.sum():.1f}".replace("-", "−"), loc="left", fontsize=10.5)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(POINTS)), POINTS)
    panels[0].invert_yaxis()
    panels[0].set_xlim(-11, 21)
    panels[1].set_xlabel("what the part adds to the logit")
    return figure


def lens() -> Figure:
    """KL(truth ‖ lens) after each part, on eight held-out fables: tokens that recall decides, and the others."""
    run = load("demo")
    corpus = run.trained.corpus()
    recall = corpus.language.skills.index("recall")
    of_recall, of_others = [], []
    for fable in held_out_documents(corpus, run.tokenizer, run.model.context_length, 8):
        log_q_NTV = torch.log_softmax(run.trace(fable.text).logits, dim=-1).double().numpy()
        truths = list(next_token_distributions(corpus.language, run.tokenizer, fable.text))[: len(fable.ids)]
        for t, truth in enumerate(truths):
            v, p = np.array(list(truth)), np.array(list(truth.values()))
            divergence_N = (p * (np.log(p) - log_q_NTV[:, t, v])).sum(axis=1)
            (of_recall if fable.shares[t, recall] > 0.5 else of_others).append(divergence_N)
    figure, axes = plt.subplots(figsize=(7.4, 3.3), layout="constrained")
    for values, colour, label, place, side in (
        (of_others, BLUE, "all other tokens", (3.1, 9.0), "left"),
        (of_recall, ORANGE, "names and things\nthat come back", (2.85, 0.07), "right"),
    ):
        means = np.mean(values, axis=0)
        axes.semilogy(range(5), means, "o-", color=colour)
        axes.text(*place, label, color=colour, ha=side, va="center")
    axes.set_xticks(range(5), POINTS)
    axes.set(
        ylabel="KL(truth ‖ lens), nats", title="How far the lens is from the truth", ylim=(1e-4, 100), xlim=(-0.3, 4.5)
    )
    axes.set_yticks([1e-4, 1e-2, 1, 100], ["0.0001", "0.01", "1", "100"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def steps() -> Figure:
    """Euler's method on a circle, and its error against the depth."""
    start = np.array([1.0, 0.0])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", width_ratios=(1, 1.15))
    angles = np.linspace(0, 1, 100)
    left.plot(np.cos(angles), np.sin(angles), color=GREY, lw=2.5)
    left.text(0.80, 0.48, "the flow", color=GREY, ha="right")
    for n_layers, colour in ((4, ORANGE), (16, BLUE)):
        path = [start]
        for layer in range(n_layers):
            path.append(path[-1] + turning(path[-1], layer / n_layers) / n_layers)
        left.plot(*np.transpose(path), "o-", color=colour, ms=3.5, lw=1.2)
        left.annotate(f"{n_layers} layers", path[-1], (7, 1), textcoords="offset points", color=colour)
    left.plot(*start, "o", color="black")
    left.plot(np.cos(1), np.sin(1), "o", color=GREY)
    left.set(aspect="equal", title="the stream of a net of two numbers", xlim=(0.4, 1.2), ylim=(-0.05, 0.97))

    depths = 2 ** np.arange(1, 11)
    exact = np.array([np.cos(1), np.sin(1)])
    errors = np.array([np.linalg.norm(euler(turning, start, int(n)) - exact) for n in depths])
    right.loglog(depths, errors, "o-", color=BLUE, base=2)
    slope = order_of_error(depths, errors)
    right.text(40, 0.06, f"slope {slope:.2f}".replace("-", "−"), color=BLUE)
    right.set(xlabel="number of layers L", title="error at the end", xlim=(1.6, 1500))
    right.set_xticks(depths[1::2], [f"{n:,}" for n in depths[1::2]])
    right.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    right.minorticks_off()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _sphere(axes: Axes, title: str, is_causal: bool) -> None:
    """The paths of 24 tokens through 400 layers, seen from afar; what lies behind is pale."""
    x_TD = tokens_on_the_sphere(24)
    path = [x_TD]
    for _ in range(400):
        path.append(attention_flow_step(path[-1], beta=1.0, step=0.1, is_causal=is_causal))
    towards = x_TD[0] + x_TD.mean(axis=0) / np.linalg.norm(x_TD.mean(axis=0)) + np.array([0.0, 0.0, 0.25])
    towards /= np.linalg.norm(towards)
    across = np.cross([0.0, 0.0, 1.0], towards)
    across /= np.linalg.norm(across)
    seen = np.array(path) @ np.stack([across, np.cross(towards, across), towards], axis=1)  # right, up, towards us

    axes.add_patch(plt.Circle((0, 0), 1, facecolor="#f4f6f9", edgecolor="#c5ccd6"))
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.92, len(x_TD)))
    for token, colour in enumerate(colours):
        for a, b in pairwise(seen[::2, token]):
            axes.plot(
                [a[0], b[0]], [a[1], b[1]], color=colour, lw=1.3, alpha=1.0 if a[2] > 0 else 0.3, solid_capstyle="butt"
            )
        x, y, z = seen[0, token]
        axes.plot(x, y, "o", color=colour, ms=5, alpha=1.0 if z > 0 else 0.35)
    x, y, _ = seen[-1, -1]
    axes.plot(x, y, "*", color=ORANGE, ms=16, mec="white")
    x, y, _ = seen[0, 0]
    axes.annotate("token 0", (x, y), (-11, 9), textcoords="offset points", ha="right", fontsize=10)
    axes.set_title(title, fontsize=11)
    axes.set(aspect="equal", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1))
    axes.axis("off")


def particles() -> Figure:
    """Tokens on a sphere that attract each other, without a mask and with the causal one."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
    _sphere(left, "without a mask", is_causal=False)
    _sphere(right, "with the causal mask", is_causal=True)
    return figure

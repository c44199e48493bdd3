"""The figures of lesson 10."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from autodiff.second import hessian
from autodiff.tape import gradient
from lesson_01 import relu
from lesson_10 import (
    Tensor,
    adam_step,
    all_fables,
    drawn_fables,
    encoded,
    gradient_norms,
    linear,
    nats_of,
    nats_without_looking_back,
    near_minimum,
    new_decoder,
    norm,
    orthogonalised,
    small_error,
    train,
)
from pellucid.training.muon import newton_schulz

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#3f8f5f", "#777777"


def _axes(width: float, height: float):
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def depth() -> Figure:
    """How long the gradient is on its way back through 30 layers, for four kinds of layer."""
    ones = Tensor(np.ones(32))
    kinds = [
        ("relu(W x), large W", lambda x, W: relu(linear(x, W)), 2.0, ORANGE, "--"),
        ("relu(W x), small W", lambda x, W: relu(linear(x, W)), 1.0, ORANGE, "-"),
        ("x + relu(W x)", lambda x, W: x + relu(linear(x, W)), 1.0, GREY, "-"),
        ("x + relu(W norm(x))", lambda x, W: x + relu(linear(norm(x, ones), W)), 1.0, BLUE, "-"),
    ]
    figure, axes = _axes(7.2, 3.8)
    for name, layer, scale, colour, style in kinds:
        norms = np.array(gradient_norms(layer, scale))
        axes.semilogy(norms / norms[-1], color=colour, ls=style, lw=1.8)
        shift = 0.45 if name == "x + relu(W x)" else -0.45 if "large" in name else 0.0
        axes.text(-0.4, norms[0] / norms[-1] * 10**shift, name, color=colour, ha="right", va="center", fontsize=10)
    axes.axhline(1, color="#cccccc", lw=0.8, zorder=0)
    axes.set(xlabel="layer (the gradient walks from right to left)", ylabel="length of the gradient, 1 at the end")
    axes.set(xlim=(-11.5, 30.5), ylim=(3e-6, 4e5), xticks=range(0, 31, 5))
    return figure


def edge() -> Figure:
    """Gradient descent from beside a minimum, with rates just below and just above 2 / sharpness."""
    bottom = near_minimum()
    values, vectors = np.linalg.eigh(hessian(small_error, bottom))
    lowest = small_error(bottom)
    figure, axes = _axes(7.2, 3.6)
    for share, colour, style in ((0.95, BLUE, "--"), (0.99, BLUE, "-"), (1.01, ORANGE, "-"), (1.05, ORANGE, "--")):
        theta = bottom + 0.01 * vectors[:, -1]
        excess = []
        for _ in range(31):
            excess.append(float(small_error(theta) - lowest))
            theta = theta - share * 2 / values[-1] * gradient(small_error, theta)
        axes.semilogy(excess, color=colour, ls=style, lw=1.8)
        axes.text(30.5, excess[-1], f"{share:.2f} · 2/λ", color=colour, va="center", fontsize=10)
    axes.set(xlabel="step of gradient descent", ylabel="error above the minimum", xlim=(0, 34))
    return figure


def paths() -> Figure:
    """Three optimizers in a valley that is 20 times as steep across as along."""
    curvature = np.array([1.0, 20.0])

    def slope(point: np.ndarray) -> np.ndarray:
        return curvature * point

    start = np.array([-4.0, 1.0])
    descent, momentum, adam = [start], [start], [start]
    P = mean = square = np.zeros(2)
    for n in range(1, 41):
        descent.append(descent[-1] - 0.09 * slope(descent[-1]))
        P = 0.8 * P + slope(momentum[-1])
        momentum.append(momentum[-1] - 0.03 * P)
        point, mean, square = adam_step(adam[-1], slope(adam[-1]), mean, square, n, 0.25, (0.8, 0.9))
        adam.append(point)
    figure, all_axes = plt.subplots(1, 3, figsize=(10, 2.7), sharey=True, layout="constrained")
    x, y = np.meshgrid(np.linspace(-4.6, 1.6, 80), np.linspace(-1.35, 1.35, 80))
    for axes, path, name in zip(
        all_axes, (descent, momentum, adam), ("gradient descent", "with momentum", "Adam"), strict=True
    ):
        axes.contour(
            x, y, (x**2 + 20 * y**2) / 2, levels=[0.1, 0.5, 1.5, 3.5, 7, 12, 18], colors="#cccccc", linewidths=0.9
        )
        axes.plot(*np.array(path).T, "o-", color=BLUE, ms=2.6, lw=1)
        axes.plot(0, 0, "+", color=ORANGE, ms=12, mew=2)
        axes.set_title(name, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def singular() -> Figure:
    """Singular values of a gradient of the decoder, of Muon's Newton-Schulz, and of the SVD with ones."""
    decoder, rows, p = new_decoder(20, 32, 4, 2, 0), *_language()
    for _ in train(decoder, drawn_fables(np.random.default_rng(1), rows, p, 16), 10, 0.01):
        pass
    g = decoder.blocks[1].W_V.gradient
    newton = newton_schulz(torch.tensor(g)[None], torch.float64)[0].numpy()
    figure, axes = _axes(7.2, 3.4)
    for matrix, name, colour in (
        (g / np.linalg.norm(g), "gradient, made of length 1", GREY),
        (newton, "Newton–Schulz, five rounds", ORANGE),
        (orthogonalised(g), "ones (SVD)", BLUE),
    ):
        values = np.linalg.svd(matrix, compute_uv=False)
        axes.plot(range(1, len(values) + 1), values, "o-", color=colour, ms=3.5, lw=1.2, label=name)
    axes.set(xlabel="singular value, from the largest", ylabel="size", ylim=(0, 1.45), xlim=(0, 33))
    axes.legend(frameon=False, loc="upper right", ncols=3, fontsize=9)
    return figure


def decoder() -> Figure:
    """The decoder with its shapes, at the size of the demo: D = 128, V = 2,048."""
    figure, axes = plt.subplots(figsize=(6.6, 7.0), layout="constrained")
    stream = 0.0

    def box(y: float, text: str, colour: str, x: float = 2.3, width: float = 2.3) -> None:
        shape = FancyBboxPatch((x - width / 2, y - 0.24), width, 0.48, boxstyle="round,pad=0.02,rounding_size=0.1")
        shape.set(fc="white", ec=colour, lw=1.5, zorder=3)
        axes.add_patch(shape)
        axes.text(x, y, text, ha="center", va="center", fontsize=10, zorder=4)

    def arrow(start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
        axes.annotate(
            "", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        )

    arrow((stream, -0.1), (stream, 9.0), BLUE)
    axes.text(stream, -0.35, "tokens (B, T)", ha="center", va="center", fontsize=11)
    box(0.55, "row of E", ORANGE, stream, 1.5)
    axes.text(stream - 0.15, 1.3, "x (B, T, 128)", ha="right", va="center", fontsize=10, color=BLUE)
    for bottom, name, colour, shape in (
        (1.6, "attention", ORANGE, "4 heads of K = 32,\neach sees the past alone"),
        (4.2, "W₂ max(0, W₁ x)²", ORANGE, "128 → 512 → 128,\nat each position alone"),
    ):
        axes.plot([stream, 2.3], [bottom, bottom], color=GREY, lw=1.4)
        arrow((2.3, bottom), (2.3, bottom + 0.31))
        box(bottom + 0.57, "norm", GREEN)
        arrow((2.3, bottom + 0.83), (2.3, bottom + 1.06))
        box(bottom + 1.32, name, colour)
        axes.plot([2.3, 2.3], [bottom + 1.58, bottom + 2.0], color=GREY, lw=1.4)
        arrow((2.3, bottom + 2.0), (stream + 0.19, bottom + 2.0))
        axes.plot(stream, bottom + 2.0, "o", ms=15, mfc="white", mec=BLUE, mew=1.5, zorder=3)
        axes.text(stream, bottom + 1.99, "+", ha="center", va="center", fontsize=13, color=BLUE, zorder=4)
        axes.text(3.6, bottom + 1.32, shape, va="center", fontsize=9, color=GREY)
    axes.plot([-0.55, -0.75, -0.75, -0.55], [1.5, 1.5, 6.4, 6.4], color=GREY, lw=1.2)
    axes.text(-0.9, 4.0, "L times", rotation=90, ha="right", va="center", fontsize=10, color=GREY)
    box(7.0, "final norm", GREEN, stream, 1.7)
    box(8.0, "times Eᵀ", ORANGE, stream, 1.5)
    axes.text(1.0, 8.0, "the embedding again: tied", va="center", fontsize=9, color=GREY)
    axes.text(stream, 9.25, "logits (B, T, 2,048)", ha="center", va="center", fontsize=11)
    axes.set(xlim=(-2.1, 5.6), ylim=(-0.6, 9.5))
    axes.axis("off")
    return figure


def floor() -> Figure:
    """The loss of the decoder on the tape, over all fables of the tiny language, and how low it can fall."""
    decoder, rows, p = new_decoder(20, 32, 4, 2, 0), *_language()
    batches = drawn_fables(np.random.default_rng(1), rows, p, 16)
    curve = [
        (n, float(p @ nats_of(decoder, rows).value.mean(1))) for n in train(decoder, batches, 250, 0.01) if n % 10 == 0
    ]
    lowest = -(p @ np.log(p)) / 14
    figure, axes = _axes(7.2, 3.8)
    axes.plot(*np.array(curve).T, color=BLUE, lw=2)
    for level, name in (
        (nats_without_looking_back(rows, p), "without looking back"),
        (lowest, "the floor: half a bit"),
    ):
        axes.axhline(level, color=GREY, ls="--", lw=1)
        axes.text(40, level - 0.006, name, va="top", color=GREY, fontsize=10)
    axes.set(xlabel="updates", ylabel="nats per token", xlim=(0, 252), ylim=(0.3, 0.7))
    return figure


def _language() -> tuple[np.ndarray, np.ndarray]:
    fables = list(all_fables())
    return np.array([encoded(text) for text, _ in fables]), np.array([p for _, p in fables])

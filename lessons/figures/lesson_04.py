"""The figures of lesson 4*."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from autodiff import sparse
from autodiff.dual import jvp
from autodiff.operations import log_softmax, reshape, softmax, sum_of
from autodiff.tape import gradient

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#4c9a52", "#9a9a9a"
COLOURS = [BLUE, ORANGE, GREEN]


def valley() -> Figure:
    """The loss of four small predictions against the temperature, before and after a logit is moved."""
    logits = np.array([[2.0, 0.5, -1.0], [0.3, 1.7, 0.2], [1.5, 1.0, -0.5], [-1.0, 0.4, 2.2]])
    targets = np.eye(3)[[0, 1, 1, 2]] / -4
    moved = logits.copy()
    moved[1, 1] += 1.0

    def loss(a, z):
        return sum_of(log_softmax(z / a) * targets)

    def slope(a, z):
        return jvp(lambda a: loss(a, z), a, 1.0)[1]

    def best(z):
        low, high = 0.1, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle, z) < 0 else (low, middle)
        return low

    before = best(logits)
    curvature = jvp(lambda a: slope(a, logits), before, 1.0)[1]
    predicted = before - gradient(lambda z: slope(before, z), logits)[1, 1] / curvature
    temperatures = np.linspace(0.33, 1.1, 200)
    figure, axes = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
    for z, label, colour in ((logits, "before", BLUE), (moved, "after one logit has grown by 1", ORANGE)):
        axes.plot(temperatures, [loss(a, z) for a in temperatures], color=colour, lw=1.6, label=label)
        axes.plot(best(z), loss(best(z), z), "o", color=colour)
    axes.axvline(
        predicted, ymax=0.7, color=GREY, lw=1.2, ls="--", label="predicted from the slopes at the blue minimum"
    )
    axes.set(xlabel="temperature α", ylabel="loss (nats)", ylim=(0.33, 0.56))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


def columns() -> Figure:
    """The notes' matrix (1.42) with its columns coloured, the graph of its columns, and the two products."""
    pattern = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]], bool)
    graph = sparse.graph_of_columns(pattern)
    colours = sparse.greedy_colouring(graph, sparse.is_proper)
    figure, (matrix, vertices, products) = plt.subplots(
        1, 3, figsize=(9.0, 3.2), layout="constrained", width_ratios=[6.4, 6, 2.2]
    )
    for axes, n_columns, title in ((matrix, 5, "five columns"), (products, 2, "two products")):
        axes.set(
            xlim=(-0.6 if axes is products else -2.0, n_columns - 0.4), ylim=(3.6, -1.2), aspect="equal", title=title
        )
        axes.axis("off")
    for i, j in zip(*np.nonzero(pattern), strict=True):
        _cell(matrix, j, i, COLOURS[colours[j]], str(j))
        _cell(products, colours[j], i, COLOURS[colours[j]], str(j))
    for i in range(4):
        matrix.text(-0.75, i, f"row {i}", ha="right", va="center", color="#555555", fontsize=9)
    for j in range(5):
        matrix.text(j, -0.85, str(j), ha="center", va="center", color=COLOURS[colours[j]], fontsize=12)
    places = {0: (0, 1), 2: (1, 0), 1: (2, 1), 3: (3, 0), 4: (4, 1)}
    shared = {
        (i, j): int(np.flatnonzero(pattern[:, i] & pattern[:, j])[0]) for i in range(5) for j in graph[i] if i < j
    }
    for (i, j), row in shared.items():
        (x0, y0), (x1, y1) = places[i], places[j]
        vertices.plot([x0, x1], [y0, y1], color=GREY, lw=1.6, zorder=1)
        vertices.text((x0 + x1) / 2, (y0 + y1) / 2 + 0.14, f"row {row}", fontsize=9, color="#555555", ha="center",
                      backgroundcolor="white", zorder=2)  # fmt: skip
    for j, (x, y) in places.items():
        _vertex(vertices, x, y, j, COLOURS[colours[j]])
    vertices.set(xlim=(-0.5, 4.5), ylim=(-0.6, 1.6), title="joined if they share a row")
    vertices.axis("off")
    return figure


def _cell(axes: Axes, x: float, y: float, colour: str, text: str) -> None:
    axes.add_patch(plt.Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, color=colour))
    axes.text(x, y, text, ha="center", va="center", color="white", fontsize=11)


def _vertex(axes: Axes, x: float, y: float, name: int, colour: str) -> None:
    axes.plot(x, y, "o", ms=24, color=colour, zorder=3)
    axes.text(x, y, str(name), ha="center", va="center", color="white", fontsize=12, zorder=4)


def peeling() -> Figure:
    """The two-coloured trees of an arrow with a chain, and the order in which their edges are peeled."""
    edges = [(0, i) for i in range(1, 6)] + [(i, i + 1) for i in range(1, 5)]
    graph = [{j for edge in edges if i in edge for j in edge if j != i} for i in range(6)]
    colours = sparse.greedy_colouring(graph, sparse.is_acyclic)
    places = {0: (3, 1.3), **{i: (i, 0.0) for i in range(1, 6)}}
    figure, panels = plt.subplots(2, 2, figsize=(8.4, 4.6), layout="constrained")
    trees = sparse.two_coloured_parts(graph, colours)
    for axes, tree in zip(panels.flat, [None, *trees], strict=True):
        order = _peeling_order(tree) if tree else []
        seen = {i for edge in order for i in edge} if tree else set(range(6))
        for i, j in edges:
            shown = tree is None or (i, j) in tree
            (x0, y0), (x1, y1) = places[i], places[j]
            axes.plot([x0, x1], [y0, y1], color="#444444" if shown else "#e3e3e3", lw=1.8 if shown else 1.2, zorder=1)
        for number, (leaf, other) in enumerate(order, start=1):
            x, y = 0.62 * np.array(places[leaf]) + 0.38 * np.array(places[other])
            box = {"boxstyle": "circle,pad=0.2", "fc": "white", "ec": "none"}
            axes.text(x, y, str(number), ha="center", va="center", fontsize=11, color="#222222", bbox=box, zorder=2)
        for i, (x, y) in places.items():
            _vertex(axes, x, y, i, COLOURS[colours[i]] if i in seen else "#dddddd")
        axes.set(xlim=(0.4, 5.6), ylim=(-0.45, 1.75))
        axes.set_title("six columns in three colours" if tree is None else f"a tree of {len(tree)} edges", fontsize=11)
        axes.axis("off")
    return figure


def _peeling_order(tree: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges of a tree as pairs (leaf, other) in the order in which they are peeled."""
    left, order = set(tree), []
    while left:
        ends = [i for edge in left for i in edge]
        i, j = next(edge for edge in sorted(left) if 1 in (ends.count(edge[0]), ends.count(edge[1])))
        left.remove((i, j))
        order.append((i, j) if ends.count(i) == 1 else (j, i))
    return order


def window() -> Figure:
    """Which position depends on which, found from the Jacobian of small attention layers; columns in their colours."""
    figure, panels = plt.subplots(1, 4, figsize=(9.6, 3.0), layout="constrained")
    for axes, (n_layers, width) in zip(panels, ((1, 3), (2, 3), (3, 3), (1, 12)), strict=True):
        pattern = _pattern_of_attention(n_layers, width)
        colours = sparse.greedy_colouring(sparse.graph_of_columns(pattern), sparse.is_proper)
        n_colours = max(colours) + 1
        image = np.where(pattern, np.array(colours)[None, :] + 1.0, 0.0)
        shades = ["#ffffff", *[plt.get_cmap("turbo")(0.08 + 0.84 * i / 11) for i in range(12)]]
        axes.imshow(image, cmap=ListedColormap(shades), vmin=0, vmax=12)
        axes.set_xticks(np.arange(-0.5, 12), minor=True)
        axes.set_yticks(np.arange(-0.5, 12), minor=True)
        axes.grid(which="minor", color="#e6e6e6", lw=0.6)
        axes.tick_params(which="minor", length=0)
        axes.set(xticks=[0, 11], yticks=[0, 11])
        name = f"{n_layers} layer{'s' * (n_layers > 1)}, " + ("full" if width == 12 else f"window {width}")
        axes.set_title(f"{name}\n{n_colours} products", fontsize=11)
    panels[0].set_ylabel("output at position")
    figure.supxlabel("input at position", fontsize=10)
    return figure


def _pattern_of_attention(n_layers: int, width: int, T: int = 12) -> np.ndarray:
    t, s = np.arange(T)[:, None], np.arange(T)
    hidden = np.where((s > t) | (s <= t - width), -1e9, 0.0)
    layers = np.random.default_rng(1).normal(size=(n_layers, 3, 2, 2))

    def stack(x):
        x = reshape(x, (T, 2))
        for W_Q, W_K, W_V in layers:
            x = x + softmax((x @ W_Q) @ (x @ W_K).T * (1 / math.sqrt(2)) + hidden) @ (x @ W_V)
        return reshape(x, (2 * T,))

    return sparse.detect_pattern(stack, 2 * T, n_points=1).reshape(T, 2, T, 2).any(axis=(1, 3))

"""Lesson 4*: implicit functions and sparse matrices. Fill it in, then run `pellucid learn 4`.

`jvp(f, x, v)` gives f(x) and the slope of f along v; `gradient(f, x)` gives the gradient. Both work inside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autodiff.dual import jvp
from autodiff.sparse import graph_of_symmetric, two_coloured_parts
from autodiff.tape import gradient

Array = np.ndarray

# ---- Through a solution, without the steps that found it ----


def implicit_derivative(g: Callable[[float, float], float], w: float, p: float) -> float:
    """dw/dp, where w solves w = g(w, p). All three are single numbers.

    w is found already, and not always by steps of g: they may lead away from it.
    """
    # solution:
    by_w = jvp(lambda w: g(w, p), w, 1.0)[1]
    by_p = jvp(lambda p: g(w, p), p, 1.0)[1]
    return by_p / (1 - by_w)
    # end


def pull_linear_system(cotangent: Array, A: Array, b: Array) -> tuple[Array, Array]:
    """What A (n, n) and b (n) get, when w = A⁻¹ b gets `cotangent` (n). `np.linalg.solve(M, r)` computes M⁻¹ r."""
    # solution:
    w = np.linalg.solve(A, b)
    y = np.linalg.solve(A.T, cotangent)
    return -np.outer(y, w), y
    # end


def temperature_slope(loss: Callable[[float, Array], float], temperature: float, logits: Array) -> Array:
    """How the best temperature moves with each logit: dα*/dz, in the shape of the logits.

    `loss(α, z)` may be differentiated by both. `temperature` is α*: the loss is smallest there, for these logits. One
    walk back is enough for all of them.
    """
    # solution:

    def slope(a: float, z: Array) -> float:
        return jvp(lambda a: loss(a, z), a, 1.0)[1]

    curvature = jvp(lambda a: slope(a, logits), temperature, 1.0)[1]
    return -gradient(lambda z: slope(temperature, z), logits) / curvature
    # end


# ---- Sparse matrices ----


def colour_columns(pattern: Array) -> list[int]:
    """A colour (0, 1, 2, …) for each column of a pattern (m, n), so that one product per colour is enough.

    `pattern[i, j]` is true where the Jacobian may differ from 0. Give one column after the other the first colour that
    is still free for it.
    """
    # solution:
    colours: list[int] = []
    for j in range(pattern.shape[1]):
        taken = {colours[k] for k in range(j) if np.any(pattern[:, j] & pattern[:, k])}
        colours.append(next(colour for colour in range(j + 1) if colour not in taken))
    return colours
    # end


def is_star(neighbours: Sequence[set[int]], colours: Sequence[int]) -> bool:
    """Whether neighbours differ in colour, and no path of four vertices has only two colours.

    `neighbours[i]` is the set of vertices that are joined to i.
    """
    # solution:
    for b, near in enumerate(neighbours):
        for c in near:
            if colours[b] == colours[c]:
                return False
            for a in near - {c}:
                for d in neighbours[c] - {a, b}:
                    if len({colours[a], colours[b], colours[c], colours[d]}) == 2:
                        return False
    return True
    # end


def peel(pattern: Array, products: Array, colours: Sequence[int]) -> Array:
    """The symmetric matrix H (n, n) from its products with an acyclic colouring.

    `products[i, c]` is the sum of H[i, j] over all j of colour c.
    `two_coloured_parts(graph_of_symmetric(pattern), colours)` lists the trees, each a set of edges (i, j) with i < j.
    """
    # solution:
    H = np.diag([products[i, colour] * pattern[i, i] for i, colour in enumerate(colours)])
    rest = products.copy()
    for tree in two_coloured_parts(graph_of_symmetric(pattern), colours):
        edges = set(tree)
        while edges:
            ends = [end for edge in edges for end in edge]
            i, j = next(edge for edge in edges if 1 in (ends.count(edge[0]), ends.count(edge[1])))
            edges.remove((i, j))
            leaf, other = (i, j) if ends.count(i) == 1 else (j, i)
            H[leaf, other] = H[other, leaf] = rest[leaf, colours[other]]
            rest[other, colours[leaf]] -= H[leaf, other]
    return H
    # end

"""Sparse Jacobians and Hessians: most entries are 0, so one product can give several columns (N0, section 1.9).

Columns that share no row can be added up before the product: J (e_1 + e_2) holds both, and the pattern says which
entry is whose. Which columns go together is a question of colours: vertices are columns, and columns of one colour are
computed in one product. A symmetric matrix holds each entry twice, so it needs fewer colours:

    distance-2   columns of one colour share no row              each entry stands alone
    star         no path of four vertices has only two colours   each entry stands alone in one of its two places
    acyclic      no cycle has only two colours                   entries come out one after the other, from the leaves
    proper       neighbours differ                               not enough to recover a matrix

(Gebremedhin, Manne and Pothen 2005, "What Color Is Your Jacobian?")
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from autodiff.dual import jacobian_by_columns, jvp
from autodiff.operations import Value
from autodiff.second import Function, forward_on_reverse

Graph = list[set[int]]  # the neighbours of each vertex
Colours = Sequence[int | None]  # of each vertex; None is not coloured yet
Rule = Callable[[Graph, Colours], bool]


def detect_pattern(f: Callable[[Value], Value], n_inputs: int, n_points: int = 6, seed: int = 0) -> Value:
    """Which output depends on which input: where the Jacobian is not 0 at one random point or another.

    It takes n products for each point, once; the pattern then serves everywhere. One point finds every entry of a
    smooth function. Several are for those that are 0 in a whole region, as that of max(0, u).
    """
    points = np.random.default_rng(seed).normal(size=(n_points, n_inputs))
    return np.any([jacobian_by_columns(f, x) != 0 for x in points], axis=0)


# ---- Graphs ----


def graph_of_symmetric(pattern: Value) -> Graph:
    """Columns i and j are neighbours if entry (i, j) is not 0."""
    return [set(np.flatnonzero(column).tolist()) - {i} for i, column in enumerate(pattern.T)]


def graph_of_columns(pattern: Value) -> Graph:
    """Columns are neighbours if they share a row."""
    return graph_of_symmetric(pattern.T.astype(int) @ pattern.astype(int) > 0)


# ---- Rules that a colouring must keep ----


def is_proper(graph: Graph, colours: Colours) -> bool:
    """Neighbours differ."""
    return all(colours[i] is None or colours[i] != colours[j] for i, neighbours in enumerate(graph) for j in neighbours)


def is_distance_2(graph: Graph, colours: Colours) -> bool:
    """A vertex and its neighbours all differ, so the neighbours of one vertex differ too."""
    groups = [[colours[j] for j in {i} | near if colours[j] is not None] for i, near in enumerate(graph)]
    return all(len(group) == len(set(group)) for group in groups)


def is_star(graph: Graph, colours: Colours) -> bool:
    """Neighbours differ, and each connected part of two colours is a star: all its edges have one vertex in common."""
    parts = two_coloured_parts(graph, colours)
    return is_proper(graph, colours) and all(set.intersection(*map(set, edges)) for edges in parts)


def is_acyclic(graph: Graph, colours: Colours) -> bool:
    """Neighbours differ, and each connected part of two colours is a tree: one vertex more than edges."""
    parts = two_coloured_parts(graph, colours)
    return is_proper(graph, colours) and all(len(set().union(*edges)) == len(edges) + 1 for edges in parts)


def two_coloured_parts(graph: Graph, colours: Colours) -> list[set[tuple[int, int]]]:
    """For each pair of colours, the edges of each connected part of the graph that has only these."""
    parts: dict[frozenset[int | None], list[set[tuple[int, int]]]] = defaultdict(list)
    for i, neighbours in enumerate(graph):
        for j in neighbours:
            pair = frozenset((colours[i], colours[j]))
            if i < j and None not in pair:
                joined = [part for part in parts[pair] if any(i in edge or j in edge for edge in part)]
                others = [part for part in parts[pair] if part not in joined]
                parts[pair] = [*others, {(i, j)}.union(*joined)]
    return [part for of_pair in parts.values() for part in of_pair]


# ---- Colourings ----


def greedy_colouring(graph: Graph, rule: Rule) -> list[int]:
    """One vertex after the other gets the first colour that breaks no rule. Few colours, not always the fewest."""
    colours: list[int] = []
    for i in range(len(graph)):
        others = [None] * (len(graph) - i - 1)
        colours.append(next(c for c in itertools.count() if rule(graph, [*colours, c, *others])))
    return colours


def fewest_colours(graph: Graph, rule: Rule) -> int:
    """The chromatic number, by trying every colouring whose first colour is 0: for half a dozen vertices."""
    others = len(graph) - 1
    tried = (any(rule(graph, (0, *c)) for c in itertools.product(range(n), repeat=others)) for n in itertools.count(1))
    return next(n for n, is_enough in enumerate(tried, start=1) if is_enough)


def directions_of(colours: Sequence[int]) -> Value:
    """For each colour a vector with ones at its columns: what a product is computed with, side by side."""
    return (np.array(colours)[:, None] == np.arange(max(colours) + 1)).astype(float)


# ---- Recovery: from the products back to the matrix ----


def recover_columns(pattern: Value, products: Value, colours: Sequence[int]) -> Value:
    """Each entry (i, j) stands in row i of the product of j's colour."""
    return np.where(pattern, products[:, colours], 0.0)


def recover_star(pattern: Value, products: Value, colours: Sequence[int]) -> Value:
    """Each entry stands alone in one of its two places: where no other neighbour of i has the colour of j."""
    H = np.zeros(pattern.shape)
    graph = graph_of_symmetric(pattern)
    for i, j in zip(*np.nonzero(pattern), strict=True):
        if sum(colours[k] == colours[j] for k in graph[i] | {i}) == 1:
            H[i, j] = H[j, i] = products[i, colours[j]]
    return H


def recover_acyclic(pattern: Value, products: Value, colours: Sequence[int]) -> Value:
    """Peel the leaves of each two-coloured tree.

    A leaf i has one neighbour j in its tree, so products[i, colour of j] is H[i, j] alone. Known, it is taken out of
    products[j, colour of i], and the tree without the leaf has new leaves.
    """
    H = np.diag(products[np.arange(len(colours)), colours] * np.diag(pattern))
    rest = products.copy()
    for edges in two_coloured_parts(graph_of_symmetric(pattern), colours):
        while edges:
            both_ways = [*edges, *((j, i) for i, j in edges)]
            i, j = next((i, j) for i, j in both_ways if sum(i in edge for edge in edges) == 1)
            H[i, j] = H[j, i] = rest[i, colours[j]]
            rest[j, colours[i]] -= H[i, j]
            edges -= {(i, j), (j, i)}
    return H


def sparse_jacobian(f: Callable[[Value], Value], x: Value, pattern: Value) -> tuple[Value, int]:
    """The Jacobian at x, and how many products it took (Curtis, Powell and Reid 1974)."""
    colours = greedy_colouring(graph_of_columns(pattern), is_proper)
    products = np.stack([jvp(f, x, v)[1] for v in directions_of(colours).T], axis=-1)
    return recover_columns(pattern, products, colours), products.shape[1]


RECOVERIES = {is_distance_2: recover_columns, is_star: recover_star, is_acyclic: recover_acyclic}


def sparse_hessian(f: Function, x: Value, pattern: Value, rule: Rule = is_star) -> tuple[Value, int]:
    """The Hessian at x, and how many Hessian-vector products it took."""
    colours = greedy_colouring(graph_of_symmetric(pattern), rule)
    products = np.stack([forward_on_reverse(f, x, v) for v in directions_of(colours).T], axis=-1)
    return RECOVERIES[rule](pattern, products, colours), products.shape[1]

"""Reverse mode: compute, remember, and walk back once.

    forward   s_k = f_k(s_{k-1}), and every s_k is kept
    backward  r_{k-1} = r_k f_k'(s_{k-1})       with r_m = the weights of the outputs     (N0, equation 1.5)

One walk gives v^T J, a vector-Jacobian product (VJP): with one output, the derivative by *every* input at once. The
price is memory. Each operation keeps its inputs until the walk has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce

import numpy as np

from autodiff.dual import Dual, levels
from autodiff.operations import Operation, Traced, Value, add, is_of_level, plain

Pull = Callable[[Value], Value]  # the cotangent of a result -> what that gives an input


class Node(Traced):
    """A value, and the inputs it was computed from, each with the rule by which a cotangent passes to it."""

    def __init__(self, value: Value, level: int, parents: Sequence[tuple[Node, Pull]] = ()) -> None:
        self.value, self.level, self.parents = value, level, parents
        copies = 0 if isinstance(value, Node) else 2 if isinstance(value, Dual) else 1  # a Node counts its own
        self.memory, self.n_numbers = memory, copies * np.size(plain(value))
        if self.memory:
            self.memory.add(self.n_numbers)

    def __del__(self) -> None:
        if self.memory:
            self.memory.add(-self.n_numbers)

    def follow(self, operation: Operation, result: Value, values: list[Value], inputs: tuple[Value, ...]) -> Node:
        pulls = [lambda r, i=i: operation.pull(i, r, result, *values) for i in range(len(inputs))]
        parents = [(x, pull) for x, pull in zip(inputs, pulls, strict=True) if is_of_level(x, self.level)]
        return Node(result, self.level, parents)


def topological_order(output: Node) -> list[Node]:
    """Every node below the output, inputs before what is computed from them."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = [(output, False)]
    while stack:
        node, inputs_are_done = stack.pop()
        if inputs_are_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((parent, False) for parent, _ in node.parents)
    return order


def walk_back(output: Node, cotangent: Value) -> dict[int, Value]:
    """The cotangent of every input of the graph, by its id. A node is passed when all that used it has been passed."""
    cotangents = {id(output): cotangent}
    order = topological_order(output)
    del output
    while order:
        node = order.pop()
        if node.parents:
            arrived = cotangents.pop(id(node))
            for parent, pull in node.parents:
                share = pull(arrived)
                known = cotangents.get(id(parent))
                cotangents[id(parent)] = share if known is None else add(known, share)  # used twice: both count
            node.parents = ()  # what was kept for it can go
    return cotangents


def vjp(f: Callable[..., Value], *inputs: Value) -> tuple[Value, Callable[[Value], list[Value]]]:
    """f(*inputs), and a function that turns a cotangent v of the result into v^T J, one for each input.

    The walk back frees the graph as it goes, so this function can be called once.
    """
    level = next(levels)
    leaves = [Node(x, level) for x in inputs]
    graph = [f(*leaves)]

    def walk(cotangent: Value) -> list[Value]:
        output = graph.pop()
        cotangents = walk_back(output, cotangent) if is_of_level(output, level) else {}
        return [cotangents.get(id(leaf), np.zeros(leaf.shape)) for leaf in leaves]

    result = graph[0].value if is_of_level(graph[0], level) else graph[0]
    return result, walk


def value_and_gradients(f: Callable[..., Value], *inputs: Value) -> tuple[Value, list[Value]]:
    """f, a single number, and its derivative by each number of each input: one pass forward, one back."""
    value, walk = vjp(f, *inputs)
    return value, walk(np.ones(np.shape(plain(value))))


def gradient(f: Callable[[Value], Value], x: Value) -> Value:
    """The gradient of a function with one input and one number as result."""
    return value_and_gradients(f, x)[1][0]


def jacobian_by_rows(f: Callable[[Value], Value], x: Value) -> Value:
    """The Jacobian of a function of a vector, a row for each of the m outputs: m walks back (N0, section 1.5)."""
    return np.stack([vjp(f, x)[1](direction)[0] for direction in np.eye(np.size(plain(f(x))))])


# ---- Memory: what the tape keeps, and how to keep less of it (N0, section 1.6) ----


class Memory:
    """How many numbers all nodes hold, now and at each change."""

    def __init__(self) -> None:
        self.now, self.history = 0, []

    def add(self, n_numbers: int) -> None:
        self.now += n_numbers
        self.history.append(self.now)


memory: Memory | None = None  # where it is recorded, if anybody asks


@contextmanager
def recorded_memory() -> Iterator[Memory]:
    """Inside, every change of what the nodes hold is recorded: `max(record.history)` is the most."""
    global memory
    before, memory = memory, Memory()
    try:
        yield memory
    finally:
        memory = before


def checkpointed(f: Callable[..., Value], *inputs: Value) -> Value:
    """f(*inputs), of which the tape keeps the inputs alone. The walk back computes the rest again.

    What f depends on must be among its inputs, unless it is a constant. Forward mode keeps nothing anyway.
    """
    innermost = max((x for x in inputs if isinstance(x, Traced)), key=lambda x: x.level, default=None)
    if not isinstance(innermost, Node):
        return f(*inputs)
    values = [x.value if is_of_level(x, innermost.level) else x for x in inputs]
    shares: list[Value] = []  # of all inputs, once the first one has asked

    def pull(i: int, cotangent: Value) -> Value:
        if not shares:
            shares.extend(vjp(f, *values)[1](cotangent))
        return shares[i]

    parents = [(x, partial(pull, i)) for i, x in enumerate(inputs) if is_of_level(x, innermost.level)]
    return Node(f(*values), innermost.level, parents)


def chain(layers: Sequence[Callable[[Value], Value]], x: Value, n_segments: int | None = None) -> Value:
    """One layer after the other. With segments, only the value at the start of each is kept.

    With sqrt(L) segments of sqrt(L) layers each, a chain of L layers keeps about 2 sqrt(L) values instead of L, and
    computes each layer twice (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost").
    """
    if n_segments is None:
        return reduce(lambda x, layer: layer(x), layers, x)
    for segment in np.array_split(np.arange(len(layers)), n_segments):
        x = checkpointed(lambda x, segment=segment: chain([layers[i] for i in segment], x), x)
    return x

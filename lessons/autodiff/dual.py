"""Forward mode: each value travels with its tangent, the derivative along one direction of the input.

    value    s_k = f_k(s_{k-1})
    tangent  t_k = f_k'(s_{k-1}) t_{k-1}        with t_0 = the direction       (N0, equation 1.4)

One pass gives J v, a Jacobian-vector product (JVP). It keeps nothing but the current pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce

import numpy as np

from autodiff.operations import Operation, Traced, Value, add, is_of_level, plain

levels = itertools.count(1)  # one for each derivative that is taken; an inner one starts later


class Dual(Traced):
    """A value and its tangent, of one shape."""

    def __init__(self, value: Value, tangent: Value, level: int) -> None:
        self.value, self.tangent, self.level = value, tangent, level

    def follow(self, operation: Operation, result: Value, values: list[Value], inputs: tuple[Value, ...]) -> Dual:
        """The chain rule with several inputs: their contributions to the tangent add up (N0, equation 1.8)."""
        moving = [(i, x.tangent) for i, x in enumerate(inputs) if is_of_level(x, self.level)]
        tangent = reduce(add, [operation.push(i, tangent, result, *values) for i, tangent in moving])
        return Dual(result, tangent, self.level)


def jvp(f: Callable[[Value], Value], x: Value, direction: Value) -> tuple[Value, Value]:
    """f(x) and J v, the derivative of f at x along the direction v."""
    level = next(levels)
    y = f(Dual(x, direction, level))
    if is_of_level(y, level):
        return y.value, y.tangent
    return y, np.zeros(np.shape(plain(y)))  # f does not look at x


def jacobian_by_columns(f: Callable[[Value], Value], x: Value) -> Value:
    """The Jacobian of a function of a vector, a column for each of the n inputs: n forward passes (N0, section 1.5)."""
    return np.stack([jvp(f, x, direction)[1] for direction in np.eye(len(x))], axis=-1)

"""Second derivatives: the two modes inside each other (N0, section 1.7).

The Hessian is the Jacobian of the gradient, so a derivative is taken of a derivative, and each can be either mode. All
four agree; they differ in what they cost for a function of n numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np

from autodiff.dual import jvp
from autodiff.operations import Value, sum_of
from autodiff.tape import gradient

Function = Callable[[Value], Value]  # of a vector; its result is a single number


def second_derivative(f: Function, x: Value, u: Value, v: Value) -> Value:
    """Forward on forward: u^T H v, a single number, in one pass (equation 1.20). All of H takes n(n+1)/2 passes."""
    return jvp(lambda x: jvp(f, x, u)[1], x, v)[1]


def forward_on_reverse(f: Function, x: Value, v: Value) -> Value:
    """H v as the change of the gradient along v (equation 1.22): the usual way, with the memory of two gradients."""
    return jvp(lambda x: gradient(f, x), x, v)[1]


def reverse_on_forward(f: Function, x: Value, v: Value) -> Value:
    """H v as the gradient of the slope along v (equation 1.24)."""
    return gradient(lambda x: jvp(f, x, v)[1], x)


def reverse_on_reverse(f: Function, x: Value, v: Value) -> Value:
    """H v as the gradient of (gradient . v) (equation 1.27): the tape of a tape, the most memory."""
    return gradient(lambda x: sum_of(gradient(f, x) * v), x)


def hessian(f: Function, x: Value, product: Callable[[Function, Value, Value], Value] = forward_on_reverse) -> Value:
    """The Hessian, a column from each of n Hessian-vector products."""
    return np.stack([product(f, x, direction) for direction in np.eye(len(x))], axis=-1)


def hessian_forward_on_forward(f: Function, x: Value) -> Value:
    """The Hessian from n(n+1)/2 numbers, each of a pass of its own."""
    directions, H = np.eye(len(x)), np.zeros((len(x), len(x)))
    for i, j in combinations_with_replacement(range(len(x)), 2):
        H[i, j] = H[j, i] = second_derivative(f, x, directions[i], directions[j])
    return H

"""Lesson 3*: second derivatives. Fill it in, then run `pellucid learn 3`.

`jvp(f, x, v)` gives f(x) and the slope of f along v; `gradient(f, x)` gives the gradient. Both work inside each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autodiff.dual import jvp
from autodiff.tape import gradient

Array = np.ndarray
Twice = tuple[float, float, float, float]  # a value, its slopes along i and along j, and its second slope along both


# ---- The steps of two modes ----


def push_product_twice(x: Twice, y: Twice) -> Twice:
    """x·y with its slopes along i and j and its second slope along both, from those of x and of y."""
    # solution:
    x, x_i, x_j, x_ij = x
    y, y_i, y_j, y_ij = y
    return x * y, x_i * y + x * y_i, x_j * y + x * y_j, x_ij * y + x_i * y_j + x_j * y_i + x * y_ij
    # end


def pull_twice(W: Array, x: Array, x_tangent: Array, cotangent: Array, cotangent_tangent: Array) -> tuple[Array, Array]:
    """What x gets in s = tanh(W x), and how that changes, when x moves by its tangent.

    W is (m, n) and stands still. `cotangent` (m) is what s has got, and `cotangent_tangent` (m) how that changes.
    """
    # solution:
    s = np.tanh(W @ x)
    slope = 1 - s**2
    slope_tangent = -2 * s * slope * (W @ x_tangent)
    return (cotangent * slope) @ W, (cotangent_tangent * slope + cotangent * slope_tangent) @ W
    # end


# ---- The product of a Hessian and a vector, and what it is good for ----


def hessian_vector_product(f: Callable[[Array], float], x: Array, v: Array) -> Array:
    """H v, where H is the Hessian (n, n) of f at x. Run f once, and build no matrix."""
    # solution:
    return jvp(lambda x: gradient(f, x), x, v)[1]
    # end


def newton_step(f: Callable[[Array], float], x: Array) -> Array:
    """Where the gradient of f would be 0 if its Hessian were everywhere what it is at x (n)."""
    # solution:
    H = np.stack([jvp(lambda x: gradient(f, x), x, direction)[1] for direction in np.eye(len(x))])
    return x - np.linalg.solve(H, gradient(f, x))
    # end


def curvature_of_loss(p: Array, z: Array, v: Array) -> float:
    """The second derivative of -Σ p ln softmax(z + t v) by t, at t = 0.

    All three have n numbers. Those of p are probabilities.
    """
    # solution:
    q = np.exp(z - z.max())
    q = q / q.sum()
    return float(np.sum(q * (v - np.sum(q * v)) ** 2))
    # end

"""Implicit differentiation: through the solution of an equation, without the steps that found it (N0, section 1.8).

Let w*(p) solve F(w, p) = 0 for parameters p. Wherever dF/dw is invertible, the solution moves with the parameters by

    dw* = -(dF/dw)^{-1} (dF/dp) dp                                           (implicit function theorem, 1.31)

however w* was found: by Newton, by a library, by a guess. The cost is one linear system, and no step is remembered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from autodiff.dual import jacobian_by_columns, jvp
from autodiff.operations import Value, concatenate
from autodiff.tape import gradient, vjp

Equations = Callable[..., Value]  # F(w, *parameters): as many numbers as w has


def implicit_jvp(F: Equations, solution: Value, parameters: Sequence[Value], tangents: Sequence[Value]) -> Value:
    """How the solution moves when the parameters move along the tangents (equation 1.32)."""
    A = jacobian_by_columns(lambda w: F(w, *parameters), solution)
    moved = zip(parameters, tangents, strict=True)
    _, pushed = jvp(lambda step: F(solution, *[p + step * tangent for p, tangent in moved]), 0.0, 1.0)
    return -np.linalg.solve(A, pushed)


def implicit_vjp(F: Equations, solution: Value, parameters: Sequence[Value], cotangent: Value) -> list[Value]:
    """For weights of the solution's numbers, the derivative by each parameter (equations 1.35 and 1.36).

    The linear system has the *transposed* matrix, and one system serves all parameters.
    """
    A = jacobian_by_columns(lambda w: F(w, *parameters), solution)
    y = np.linalg.solve(A.T, cotangent)
    _, walk = vjp(lambda *parameters: F(solution, *parameters), *parameters)
    return [-share for share in walk(y)]


# ---- Three equations that a solution may solve ----


def of_fixed_point(g: Callable[..., Value]) -> Equations:
    """w = g(w, p): for example the square root of p as the fixed point of (w + p/w)/2 (equation 1.28)."""
    return lambda w, *parameters: w - g(w, *parameters)


def of_argmin(loss: Callable[..., Value]) -> Equations:
    """w minimises loss(w, p): there the gradient by w is 0, so dF/dw is the Hessian."""
    return lambda w, *parameters: gradient(lambda w: loss(w, *parameters), w)


def of_program(n: int) -> Equations:
    """The conditions of Karush, Kuhn and Tucker for min x^T Q x / 2 + c^T x with A x = b and x >= 0 (as 1.40).

    w holds x, n numbers, then y, the multipliers of A x = b. Either x_i or the slope of the Lagrangian along it is 0.
    """

    def F(w: Value, Q: Value, c: Value, A: Value, b: Value) -> Value:
        x, y = w[:n], w[n:]
        return concatenate([x * (Q @ x + c - A.T @ y), A @ x - b])

    return F


def iterate(g: Callable[..., Value], start: Value, *parameters: Value, n_steps: int = 100) -> Value:
    """The fixed point of w = g(w, p), by following it."""
    return reduce(lambda w, _: g(w, *parameters), range(n_steps), start)


def solve_program(Q: Value, c: Value, A: Value, b: Value) -> Value:
    """The solution (x, y) of a small convex program as above, by trying which x_i are 0: 2^n systems.

    Raises ValueError if there is no solution at which just one choice of zeros holds.
    """
    m, n = A.shape
    for is_free in itertools.product([True, False], repeat=n):
        free = np.flatnonzero(is_free)
        matrix = np.block([[Q[np.ix_(free, free)], -A[:, free].T], [A[:, free], np.zeros((m, m))]])
        if np.linalg.matrix_rank(matrix) < len(matrix):
            continue
        solved = np.linalg.solve(matrix, np.concatenate([-c[free], b]))
        x, y = np.zeros(n), solved[len(free) :]
        x[free] = solved[: len(free)]
        if (x[free] > 0).all() and np.delete(Q @ x + c - A.T @ y, free).min(initial=1.0) > 0:
            return np.concatenate([x, y])
    raise ValueError("no solution with strict complementarity; is the program feasible, bounded and not degenerate?")

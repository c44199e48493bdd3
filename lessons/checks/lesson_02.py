"""Checks of lesson 2*: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from autodiff import sparse
from autodiff.dual import jvp
from autodiff.operations import cos, log_softmax, sin, sum_of
from autodiff.tape import gradient
from pellucid.course.checks import Wrong, expect


def hessian_vector_product(lesson: ModuleType) -> None:
    x, v = np.array([0.5, 2.0, -1.0]), np.array([3.0, -1.0, 0.5])
    a, b, c = x
    n_runs = 0

    def f(x):
        nonlocal n_runs
        n_runs += 1
        return sin(x[0] * x[1]) + x[0] * x[2] ** 3

    s, t = np.sin(a * b), np.cos(a * b)
    H = np.array([[-b * b * s, t - a * b * s, 3 * c * c], [t - a * b * s, -a * a * s, 0], [3 * c * c, 0, 6 * a * c]])
    slopes = np.array([b * t + c**3, a * t, 3 * a * c * c])
    answer = lesson.hessian_vector_product(f, x, v)
    runs = n_runs
    what = "sin(x₀x₁) + x₀x₂³ at (0.5, 2, -1)"
    if isinstance(answer, tuple):
        raise Wrong(f"{what}: you return {len(answer)} things; forward mode gives a value and its slope, and H v is "
                    "the slope of the gradient")  # fmt: skip
    if np.shape(answer) == () and answer is not None and np.isclose(answer, v @ H @ v):
        raise Wrong(f"{what}: you have one number, vᵀ H v: how the slope along v changes along v. H v is how the "
                    "whole *gradient* changes")  # fmt: skip
    try:
        expect(
            answer,
            H @ v,
            f"H v for {what}",
            [
                (slopes, f"{what}: you have the gradient itself; H v is its slope along v"),
                (slopes * v, f"{what}: you have the gradient, each number times that of v; H v asks how the *gradient* "
                             "changes when x moves along v"),
                (H.sum(axis=1) * v, f"{what}: you have the sum of each row of H, times that row's v; each entry of a "
                                    "row needs the v of its own column"),
                (np.diag(H) * v, f"{what}: you have the diagonal of H times v; x₀ and x₁ are multiplied in f, so the "
                                 "slope by x₀ changes with x₁ too"),
            ],
        )  # fmt: skip
    except Wrong:
        if answer is None or np.shape(answer) != (3,) or not 1e-9 < np.abs(answer - H @ v).max() < 1.0:
            raise
        error = np.abs(answer - H @ v).max()
        raise Wrong(f"{what}: your H v is off by {error:.0e}, as the difference of two gradients would be; a "
                    "derivative of the gradient has no step size, and no such error") from None  # fmt: skip
    if runs == 2:
        raise Wrong("H v is right, but you ran f 2 times; one run is enough, and has no step that could be too large")
    if runs > 2:
        raise Wrong(f"H v is right, but you ran f {runs} times; with a million numbers in x, all of H would take a "
                    "million runs, and H v alone takes one")  # fmt: skip


def implicit_derivative(lesson: ModuleType) -> None:
    p = 0.8
    w = 1.0
    for _ in range(200):
        w = p * np.cos(w)
    by_w, by_p = -p * np.sin(w), np.cos(w)
    what = f"w = 0.8 cos w is solved by w = {w:.4f}: dw/dp there"
    expect(
        lesson.implicit_derivative(lambda w, p: p * cos(w), w, p),
        by_p / (1 - by_w),
        what,
        [
            (by_p, f"{what}: you have {by_p:.4f}, the slope of one step, as if w stood still in cos w; but w has moved "
                   "too, in every step before (for Newton's square root, one step would be right: why?)"),
            (by_p + by_w * by_p, f"{what}: you follow p through two steps, but w has moved in all of them; the "
                                 "equation w = g(w, p) holds for all at once"),
            (by_w * by_p, f"{what}: you multiply the two slopes; p moves g directly, and through w, and both count"),
            (-by_p / (1 - by_w), f"{what}: your sign is lost: a larger p makes a larger w here; the minus of the "
                                 "theorem meets another one, because F = w - g"),
            (by_p / (1 + by_w), f"{what}: you divide by 1 plus the slope by w; the equation to differentiate is "
                                "w - g(w, p) = 0, whose slope by w has a minus"),
            (-by_p / by_w, f"{what}: you took g for F; the equation that holds at the solution is w - g(w, p) = 0, and "
                           "its slope by w has a 1 in it"),
        ],
    )  # fmt: skip
    expect(
        lesson.implicit_derivative(lambda w, a: (w + a / w) * 0.5, 3.0, 9.0),
        1 / 6,
        "the square root of 9 by Newton's step (w + a/w)/2: its slope by a",
    )


def pull_linear_system(lesson: ModuleType) -> None:
    A = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0], [1.0, 0.0, 1.0]])
    b, r = np.array([1.0, 2.0, 4.0]), np.array([1.0, -2.0, 3.0])
    answer = lesson.pull_linear_system(r, A, b)
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("two things get something here: return the pair of what A gets and what b gets")
    w, y = np.linalg.solve(A, b), np.linalg.solve(A.T, r)
    straight = np.linalg.solve(A, r)
    if np.shape(answer[0]) == (3,) and np.shape(answer[1]) == (3, 3):
        raise Wrong("first comes what A gets, a matrix, and then what b gets: you return them the other way round")
    expect(
        answer[1],
        y,
        "what b gets",
        [
            (straight, "what b gets: you solved with A, which is right for a symmetric A only; going back, a matrix is "
                       "transposed, and so is its inverse"),
            (-y, "what b gets: your sign is lost: w = A⁻¹ b is linear in b, and grows with it"),
        ],
    )  # fmt: skip
    expect(
        answer[0],
        -np.outer(y, w),
        "what A gets",
        [
            (np.outer(y, w), "what A gets: the sign is lost; with numbers, w = b/a *falls* by w/a when a grows"),
            (-np.outer(w, y), "what A gets: it lies on its side; row i of A belongs to equation i, which y weighs, and "
                              "column j to the unknown w_j"),
            (-np.outer(r, w), "what A gets: you weigh equation i by r_i, but r_i is what the *unknown* w_i has got; an "
                              "equation gets as much as its b_i"),
            (-np.outer(y, b), "what A gets: you used b where the solution w belongs; entry (i, j) of A multiplies w_j"),
        ],
    )  # fmt: skip


def temperature_slope(lesson: ModuleType) -> None:
    logits = np.array([[2.0, 0.5, -1.0], [0.3, 1.7, 0.2], [1.5, 1.0, -0.5], [-1.0, 0.4, 2.2]])
    targets = np.eye(3)[[0, 1, 1, 2]] / -4

    n_runs = 0

    def loss(a, z):
        nonlocal n_runs
        n_runs += 1
        return sum_of(log_softmax(z / a) * targets)

    def slope(a, z=logits):
        return jvp(lambda a: loss(a, z), a, 1.0)[1]

    low, high = 0.1, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    best = (low + high) / 2
    curvature = jvp(slope, best, 1.0)[1]
    mixed = gradient(lambda z: slope(best, z), logits)
    direct = gradient(lambda z: loss(best, z), logits)
    n_runs = 0
    answer = lesson.temperature_slope(loss, best, logits)
    runs = n_runs
    if np.shape(answer) == (4, 3) and np.abs(answer).max() > 1e6:
        raise Wrong(f"dα*/dz: you have numbers as large as {np.abs(answer).max():.0e}: you divide by the slope of the "
                    "loss, which is 0 at its minimum; divide by the slope of F, which is the curvature")  # fmt: skip
    expect(
        answer,
        -mixed / curvature,
        "dα*/dz for 4 rows of 3 logits",
        [
            (mixed / curvature, "dα*/dz: the sign is lost; raise a logit so that the slope by α goes up, and the "
                                "valley lies at a smaller α"),
            (mixed, "dα*/dz: you have how the slope by α changes with a logit; how far the valley moves depends on how "
                    "sharply it is curved, too"),
            (-mixed, "dα*/dz: you have how the slope by α changes with a logit, negated; how far the valley moves "
                     "depends on how sharply it is curved, too"),
            (-direct, "dα*/dz: you took how the *loss* changes with a logit; that is not how its minimum moves"),
            (-direct / curvature, "dα*/dz: you took how the *loss* changes with a logit; what must stay 0 is its slope "
                                  "by α, so ask how that slope changes"),
        ],
        tolerance=1e-7,
    )  # fmt: skip
    if runs > 8:
        raise Wrong(f"dα*/dz is right, but you ran the loss {runs} times for 12 logits; a walk back gives all of them")


def colour_columns(lesson: ModuleType) -> None:
    notes = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]], bool)
    _check_colours(lesson, notes, "the notes' matrix (1.42), 4 by 5", 2)
    rows = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0],
                     [0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)  # fmt: skip
    _check_colours(lesson, rows, "a matrix of 6 by 6", 3)
    late = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]], bool)  # the last column meets colour 1 before colour 0
    _check_colours(lesson, late, "a matrix of 3 by 4", 3)
    full = np.tri(5, dtype=bool)
    _check_colours(lesson, full, "a full lower triangle of 5 by 5", 5)


def _check_colours(lesson: ModuleType, pattern: np.ndarray, what: str, n_enough: int) -> None:
    n = pattern.shape[1]
    colours = lesson.colour_columns(pattern.copy())
    if colours is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if len(colours) != n:
        raise Wrong(f"{what} has {n} columns, but you give {len(colours)} colours")
    for k in range(n):
        for j in range(k):
            shared = np.flatnonzero(pattern[:, j] & pattern[:, k])
            if colours[j] == colours[k] and len(shared):
                raise Wrong(f"{what}: columns {j} and {k} have one colour, but both have an entry in row {shared[0]}: "
                            "their product would hold the sum of the two, and nothing tells them apart")  # fmt: skip
    n_used = len(set(colours))
    if n_used > n_enough:
        raise Wrong(f"{what}: {n_used} colours are {n_used} products, and {n_enough} are enough; columns that share no "
                    "row can have one colour, however far apart they are")  # fmt: skip
    if set(colours) != set(range(n_used)):
        raise Wrong(f"{what}: your colours are {sorted(set(colours))}; number them 0, 1, 2, … without gaps")


def is_star(lesson: ModuleType) -> None:
    for n, edges, colours, right, sentence in _STARS:
        neighbours = [{j for edge in edges if i in edge for j in edge if j != i} for i in range(n)]
        answer = lesson.is_star(neighbours, colours)
        if answer is None:
            raise Wrong("your function returns None; is a `return` missing?")
        if bool(answer) != right:
            raise Wrong(sentence)


_STARS = [
    (3, [(0, 1), (1, 2)], [0, 1, 1], False,
     "the path 0-1-2 in the colours 0, 1, 1: you say it is a star, but 1 and 2 are neighbours of one colour"),
    (3, [(0, 1), (1, 2)], [0, 1, 0], True,
     "the path 0-1-2 in the colours 0, 1, 0: you say it is no star, but it is, with its centre in the middle; ends of "
     "a path of three vertices may be alike (it is distance 2 that forbids it)"),
    (4, [(0, 1), (0, 2), (1, 3)], [0, 1, 1, 0], False,
     "the notes' path 2-0-1-3, coloured as in (1.51): you say it is a star, but its four vertices have two colours, so "
     "the entry of 0 and 1 stands alone nowhere"),
    (4, [(0, 1), (0, 2), (1, 3)], [0, 1, 1, 2], True,
     "the notes' path 2-0-1-3, coloured as in (1.54): you say it is no star, but its four vertices have three colours"),
    (4, [(0, 1), (1, 2), (2, 3), (0, 3)], [0, 1, 0, 2], True,
     "a ring of four in the colours 0, 1, 0, 2: you say it is no star, but each path of four goes through all four "
     "vertices, which have three colours"),
    (6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [0, 1, 2, 1, 2, 0], False,
     "the path 0-1-2-3-4-5 in the colours 0, 1, 2, 1, 2, 0: you say it is a star, but 1-2-3-4 is a path of four with "
     "two colours; it need not begin at an end"),
    (4, [(0, 1), (0, 2), (1, 2), (2, 3)], [0, 1, 2, 0], True,
     "a triangle 0-1-2 with a tail 2-3 in the colours 0, 1, 2, 0: you say it is no star, but every path of four has "
     "three colours"),
]  # fmt: skip


def peel(lesson: ModuleType) -> None:
    _check_peeled(lesson, 4, [(0, 1), (0, 2), (1, 3)], [0, 1, 1, 0], "the notes' matrix (1.50)")
    chain = [(i, i + 1) for i in range(1, 6)]
    hub = [(0, i) for i in range(1, 7)]
    _check_peeled(lesson, 7, hub + chain, [0, 1, 2, 1, 2, 1, 2], "a hub joined to a chain of six")


def _check_peeled(lesson: ModuleType, n: int, edges: list[tuple[int, int]], colours: list[int], what: str) -> None:
    random = np.random.default_rng(n)
    pattern, H = np.eye(n, dtype=bool), np.diag(random.uniform(1, 9, n).round(1))
    for i, j in edges:
        pattern[i, j] = pattern[j, i] = True
        H[i, j] = H[j, i] = random.uniform(1, 9)
    products = H @ sparse.directions_of(colours)
    before = products.copy()
    answer = lesson.peel(pattern.copy(), products, list(colours))
    if np.shape(answer) != (n, n):
        expect(answer, H, what)
    answer = np.asarray(answer, float)
    if not np.allclose(products, before):
        raise Wrong(f"{what}: you changed the products that you were given; take entries out of a copy")
    if np.allclose(answer, H, rtol=0, atol=1e-8):
        return
    if np.allclose(np.where(answer == 0, answer.T, answer), H):
        raise Wrong(f"{what}: only one half of H is right; each entry stands in two places, (i, j) and (j, i)")
    if not np.allclose(np.diag(answer), np.diag(H)):
        i = int(np.abs(np.diag(answer - H)).argmax())
        raise Wrong(f"{what}: H[{i}, {i}] is {H[i, i]:.3g}, you have {answer[i, i]:.3g}; no neighbour of {i} has the "
                    f"colour of {i}, so the product of that colour has the diagonal alone")  # fmt: skip
    for i, j in edges:
        if not np.isclose(answer[i, j], H[i, j]):
            for a, b in ((i, j), (j, i)):
                if np.isclose(answer[i, j], products[a, colours[b]]):
                    raise Wrong(f"{what}: for H[{i}, {j}] you have {answer[i, j]:.3g}, which is a sum of entries; "
                                "those of the leaves peeled before must be taken out first")  # fmt: skip
                if np.isclose(answer[i, j], H[a, a]):
                    raise Wrong(f"{what}: for H[{i}, {j}] you have {answer[i, j]:.3g}, an entry of the diagonal; the "
                                "entry stands in the product of the *other* vertex's colour")  # fmt: skip
    expect(answer, H, what, tolerance=1e-8)

"""Checks of lesson 3*: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from autodiff import second
from autodiff.operations import log_softmax, sin, sum_of, tanh
from pellucid.course.checks import Wrong, draws, expect, unchanged


def push_product_twice(lesson: ModuleType) -> None:
    at_three = (3.0, 1.0, 1.0, 0.0)  # x itself, along itself
    answer = lesson.push_product_twice(at_three, at_three)
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 4:
        raise Wrong("four things go on: return the value, its slope along i, its slope along j, and the second slope")
    what = "x·x at 3, along x twice: the second slope"
    expect(answer[0], 9.0, "x·x at 3: the value")
    for slope in answer[1:3]:
        expect(slope, 6.0, "x·x at 3: the slope")
    expect(
        answer[3],
        2.0,
        what,
        [
            (0.0, f"{what}: you have 0, as if only x_ij counted; even where x and y are straight lines, their product "
                  "is curved: a slope of the one times a slope of the other"),
            (1.0, f"{what}: you have 1, not 2; the slopes are multiplied in two ways: x along i with y along j, and x "
                  "along j with y along i"),
            (6.0, f"{what}: you have 6, the first slope; differentiate it once more"),
        ],
    )  # fmt: skip
    random = draws("push_product_twice")
    for _ in range(3):
        x, y = random.normal(size=(2, 4)).tolist()
        a, a_i, a_j, a_ij = x
        b, b_i, b_j, b_ij = y
        answer = lesson.push_product_twice(tuple(x), tuple(y))
        expect(answer[0], a * b, "a product of random numbers: the value")
        expect(answer[1], a_i * b + a * b_i, "a product of random numbers: the slope along i")
        expect(answer[2], a_j * b + a * b_j, "a product of random numbers: the slope along j")
        right = a_ij * b + a_i * b_j + a_j * b_i + a * b_ij
        expect(
            answer[3],
            right,
            "a product of random numbers: the second slope",
            [
                (right - a_i * b_j - a_j * b_i, "both factors move: along i the one, along j the other; these two "
                                                "products of slopes are missing from your second slope"),
                (right - a_j * b_i, "x along j with y along i is missing from your second slope"),
                (right - a_i * b_j, "x along i with y along j is missing from your second slope"),
                (right - a_ij * b - a * b_ij, "the curvature that x and y had before is lost: x_ij is passed on times "
                                              "y, and y_ij times x"),
                (right - a_i * b_j - a_j * b_i + a_i * b_i + a_j * b_j, "you multiply the two slopes along i with each "
                                              "other; one derivative is along i and the other along j"),
                (right - a_i * b_j - a_j * b_i + 2 * a_i * b_j, "you count x along i with y along j twice; that is "
                                              "right when both directions are the same, as in x³, and else not"),
                (right - a_i * b_j - a_j * b_i + 2 * a_j * b_i, "you count x along j with y along i twice; that is "
                                              "right when both directions are the same, as in x³, and else not"),
            ],
        )  # fmt: skip
    zero, other = (0.0, 2.0, 3.0, 5.0), (0.0, 7.0, 11.0, 13.0)
    what = "a product of two values that are 0"
    try:
        answer = lesson.push_product_twice(zero, other)
    except ZeroDivisionError:
        raise Wrong(f"{what}: your function divides by a value, which may be 0; no division is needed") from None
    expect(answer[3], 43.0, f"{what}: the second slope")


def pull_twice(lesson: ModuleType) -> None:
    random = draws("pull_twice")
    for m, n in ((1, 1), (3, 3), (3, 2), (2, 5)):
        W, x, x_tangent = random.normal(size=(m, n)), random.normal(size=n), random.normal(size=n)
        r, r_tangent = random.normal(size=(2, m))
        given = W.copy(), x.copy(), x_tangent.copy(), r.copy(), r_tangent.copy()
        answer = lesson.pull_twice(*given)
        if answer is None:
            raise Wrong("your function returns None; is a `return` missing?")
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong("a pair goes back: return what x gets, and how that changes")
        s = np.tanh(W @ x)
        slope = 1 - s * s
        J, H = slope[:, None] * W, (-2 * s * slope * (W @ x_tangent))[:, None] * W
        layer = f"tanh(W x) with W ({m}, {n})"
        what, change = f"{layer}: what x gets", f"{layer}: how what x gets changes"
        turned = W @ (r * slope) if m == n else r
        expect(
            answer[0],
            r @ J,
            what,
            [
                (turned, f"{what}: W lies on its side; x_j gets its share through column j of W"),
                (r @ W, f"{what}: you left out the slope of tanh, 1 - s²"),
                ((r * (1 - np.tanh(r) ** 2)) @ W, f"{what}: the slope of tanh is 1 - s², with s of this layer"),
                ((r * (1 - (W @ x) ** 2)) @ W, f"{what}: the slope of tanh is 1 - s² with s = tanh(W x), not W x"),
            ],
        )
        if not all(map(np.array_equal, given, (W, x, x_tangent, r, r_tangent))):
            raise Wrong(f"{layer}: you write into an array that you get, and others may still need it; make a new one")
        stay = (r * -2 * s * (W @ x_tangent)) @ W
        expect(
            answer[1],
            r_tangent @ J + r @ H,
            change,
            [
                (r_tangent @ J, f"{change}: you have only ṙ J; J changes too when x moves, by H, and r H is missing"),
                (r @ H, f"{change}: you have only r H; the cotangent itself changes by ṙ, and ṙ J is missing"),
                (r_tangent @ H + r @ J, f"{change}: you took ṙ H + r J; in each product one factor is as it was, "
                                        "and the other is its change"),
                (r_tangent @ J - r @ H, f"{change}: the sign of r H is lost: 1 - s² *falls* where s² grows"),
                (r_tangent @ J + r @ H / 2, f"{change}: you have half of r H; the slope of s² is 2s"),
                (r_tangent @ J + stay, f"{change}: s moves by (1 - s²) times W ẋ, not by W ẋ: it goes through tanh"),
                (r_tangent @ H, f"{change}: you multiplied the two changes; a product changes by one factor at a time"),
            ],
        )  # fmt: skip
    # A consequence: two layers, put together, give H v; and far out, where tanh is flat, nothing comes back.
    layers, (x, v) = random.normal(size=(2, 4, 4)), random.normal(size=(2, 4))

    def f(x):
        return sum_of(tanh(layers[1] @ tanh(layers[0] @ x)) * np.arange(1.0, 5.0))

    middle = np.tanh(layers[0] @ x)
    middle_tangent = (1 - middle**2) * (layers[0] @ v)
    pair = lesson.pull_twice(layers[1], middle, middle_tangent, np.arange(1.0, 5.0), np.zeros(4))
    _, product = lesson.pull_twice(layers[0], x, v, *pair)
    expect(product, second.forward_on_reverse(f, x, v), "H v of two layers, put together from two of your steps")
    far = lesson.pull_twice(np.eye(2), np.array([1000.0, -1000.0]), np.ones(2), np.ones(2), np.ones(2))
    expect(far, np.zeros((2, 2)), "a layer at x = ±1000, where tanh is flat")


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
    answer = unchanged(lesson.hessian_vector_product, f, x, v)
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
    random = draws("hessian_vector_product")
    for n in (1, 2, 5):
        M, x, v = random.normal(size=(n, n)), random.normal(size=n), 1000 * random.normal(size=n)
        # The gradient of sum(sin(M x)) is M^T cos(M x).
        expect(
            lesson.hessian_vector_product(lambda x, M=M: sum_of(sin(M @ x)), x, v),
            -M.T @ (np.sin(M @ x) * (M @ v)),
            f"H v for the sum of sin(M x), {n} numbers in x, and v as large as {np.abs(v).max():.0f}",
        )
    expect(
        lesson.hessian_vector_product(lambda x: x[0] - 3.0 * x[1], np.array([1.0, 2.0]), np.array([5.0, 7.0])),
        np.zeros(2),
        "H v for x₀ - 3x₁, whose slopes never change",
    )
    with np.errstate(all="ignore"):
        answer = lesson.hessian_vector_product(lambda x: sum_of(x**3), np.array([1.0, 2.0]), np.zeros(2))
    expect(answer, np.zeros(2), "H v for v = (0, 0)")


def newton_step(lesson: ModuleType) -> None:
    random = draws("newton_step")
    for n in (1, 2, 5):
        B, bottom, x = random.normal(size=(n, n)), random.normal(size=n), 100 * random.normal(size=n)
        A = B @ B.T + 3 * np.eye(n)
        what = f"a bowl of {n} number{'s' * (n > 1)} that is a parabola: the place after one step"
        given = x.copy()
        answer = lesson.newton_step(lambda x, A=A, c=bottom: sum_of((x - c) * (A @ (x - c))), given)
        g, H = 2 * A @ (x - bottom), 2 * A
        expect(
            answer,
            bottom,
            what,
            [
                (x + np.linalg.solve(H, g), f"{what}: you went the wrong way: g + H d = 0, so d has a minus"),
                (bottom - x, f"{what}: you return the step d; the place where it leads is x + d"),
                (x - bottom, f"{what}: you return the step, with the wrong sign; the place is x - H⁻¹ g"),
                (x - H @ g, f"{what}: you multiply the gradient with H; the step solves H d = -g, so H is divided by"),
                (x - g / np.diag(H), f"{what}: you divide each slope by its own curvature alone; the slopes "
                                     "depend on the other numbers too, so it takes all of H"),
                (x - g, f"{what}: you went down the gradient by its own length; the curvature says how far it is"),
            ],
            tolerance=1e-5,
        )  # fmt: skip
        if not np.array_equal(given, x):
            raise Wrong(f"{what} is right, but you moved x itself: whoever called you no longer knows where the step "
                        "began; return a new array")  # fmt: skip
    x = np.array([0.3, 1.2])
    H = np.array([[-np.sin(0.3), 0.0], [0.0, 12 * 1.2**2]])
    try:
        answer = lesson.newton_step(lambda x: sin(x[0]) + x[1] ** 4, x.copy())
    except np.linalg.LinAlgError as error:
        if "positive definite" not in str(error):
            raise
        raise Wrong("sin x₀ + x₁⁴ at (0.3, 1.2) is curved downwards along x₀, and a Cholesky factor exists only where "
                    "all is curved upwards; `np.linalg.solve` asks for no such thing") from None  # fmt: skip
    expect(
        answer,
        x - np.linalg.solve(H, np.array([np.cos(0.3), 4 * 1.2**3])),
        "sin x₀ + x₁⁴ at (0.3, 1.2), which is no parabola, and curved downwards along x₀",
        tolerance=1e-6,
    )
    k = 1e4
    expect(
        lesson.newton_step(lambda x: sum_of(sin(k * x)), np.array([1.0, 2.0])),
        np.array([1.0, 2.0]) + np.cos(k * np.array([1.0, 2.0])) / np.sin(k * np.array([1.0, 2.0])) / k,
        "sin(10000 x₀) + sin(10000 x₁), where a difference with a fixed step is too coarse",
        tolerance=1e-9,
    )
    A, bottom = np.array([[1e6, 1.0], [1.0, 2.0]]), random.normal(size=2)
    expect(
        lesson.newton_step(lambda x: sum_of((x - bottom) * (A @ (x - bottom))), bottom + random.normal(size=2)),
        bottom,
        "a valley that is a million times as steep across as along (where the slope along it is small, it is not 0)",
        tolerance=1e-7,
    )


def curvature_of_loss(lesson: ModuleType) -> None:
    random = draws("curvature_of_loss")
    for n in (2, 3, 6):
        p, z, v = random.dirichlet(np.ones(n)), 2 * random.normal(size=n), 3 * random.normal(size=n)
        q = np.exp(z) / np.exp(z).sum()
        right = q @ (v - q @ v) ** 2
        what = f"{n} words, random logits and a random direction: the curvature"
        expect(
            unchanged(lesson.curvature_of_loss, p, z, v),
            right,
            what,
            [
                (p @ (v - p @ v) ** 2, f"{what}: you took the variance under p, the truth; the slope is q·v - p·v, "
                                       "and only q moves with the logits"),
                (q @ v**2, f"{what}: you have the mean square of v; when one q grows the others must "
                           "fall, and that takes the square of the mean away"),
                (q @ v - p @ v, f"{what}: you have the slope of the loss; differentiate it once more"),
                (q @ v, f"{what}: you have the mean of v, a part of the slope; differentiate it once more"),
                ((q - p) @ v**2, f"{what}: p·z is a straight line along v, so p has no part in the second derivative"),
                (p @ (v - q @ v) ** 2, f"{what}: you have the deviations from q's mean, but weigh them by p"),
                (np.var(v), f"{what}: you have the variance with the same weight for each word; its weights are q"),
                (np.sqrt(right), f"{what}: you took the square root; the curvature is the variance"),
                (-right, f"{what}: the sign is lost; a loss is curved upwards, along every direction"),
            ],
        )  # fmt: skip
        by_tape = second.second_derivative(lambda t, z=z, v=v, p=p: -sum_of(log_softmax(z + v * t) * p), 0.0, 1.0, 1.0)
        assert abs(by_tape - right) < 1e-9
    expect(
        lesson.curvature_of_loss(np.array([0.5, 0.5]), np.array([3.0, 3.0]), np.array([7.0, 7.0])),
        0.0,
        "along (7, 7), where all logits rise together and softmax does not change",
    )
    expect(
        lesson.curvature_of_loss(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([1.0, -1.0])),
        4 / (2 + np.exp(1) + np.exp(-1)),
        "a word that cannot come (p = 0)",
    )
    p, z, v = np.array([0.5, 0.25, 0.25]), np.array([1000.0, 1000.0, 0.0]), np.array([1.0, -1.0, 5.0])
    expect(lesson.curvature_of_loss(p, z, v), 1.0, "logits of 1000 (what happens to e to the 1000?)")
    p, z, v = np.full(4, 0.25), np.array([2000.0, 1999.0, 0.0, 0.0]), np.array([1.0, -1.0, 5.0, 3.0])
    with np.errstate(all="ignore"):
        answer = lesson.curvature_of_loss(p, z, v)
    what = "logits of 2000, 1999, 0 and 0"
    cut = f"{what}: you have 1, as if the first two were equal; do not cut logits off, but subtract the largest"
    expect(answer, 4 / (2 + np.exp(1) + np.exp(-1)), what, [(1.0, cut)])

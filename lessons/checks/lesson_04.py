"""Checks of lesson 4*: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from autodiff import sparse
from autodiff.dual import jvp
from autodiff.operations import cos, log_softmax, sin, sum_of
from autodiff.tape import gradient
from pellucid.course.checks import Wrong, draws, expect, unchanged


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
    random = draws("implicit_derivative")
    p = random.uniform(1.0, 6.0)
    w = (1 + np.sqrt(1 + 4 * p)) / 2
    what = f"w = w² - p is solved by w = {w:.4f} at p = {p:.4f}: dw/dp there"
    try:
        with np.errstate(all="ignore"):
            answer = lesson.implicit_derivative(lambda w, p: w * w - p, w, p)
    except ArithmeticError:
        answer = np.inf
    if answer is not None and np.shape(answer) == () and not abs(answer - 1 / (2 * w - 1)) < 1e-6:
        raise Wrong(
            f"{what}: you have {answer:.3g}, not {1 / (2 * w - 1):.3g}; the steps of this g run *away* from w, and so "
            "does what differentiates them; the equation w = g(w, p) holds there without a step"
        )
    expect(answer, 1 / (2 * w - 1), what)
    w, p, k = random.uniform(1.0, 2.0), random.uniform(1.0, 2.0), 1e6
    c = w - (np.sin(k * w) + np.sin(k * p)) / k
    what = "a g that goes up and down a million times (c + (sin(kw) + sin(kp))/k): dw/dp"
    try:
        expect(
            lesson.implicit_derivative(lambda w, p: c + (sin(k * w) + sin(k * p)) / k, w, p),
            np.cos(k * p) / (1 - np.cos(k * w)),
            what,
            tolerance=1e-7,
        )
    except Wrong as wrong:
        raise Wrong(f"{wrong}; so it is when the step of a difference is too large; `jvp` has no step") from None
    for _ in range(2):
        a, b, w, p = *random.uniform(-4.0, 0.9, size=2), *random.normal(size=2) * 1e4
        c = w - a * w - b * p
        expect(
            lesson.implicit_derivative(lambda w, p, a=a, b=b, c=c: a * w + b * p + c, w, p),
            b / (1 - a),
            f"w = {a:.3f} w + {b:.3f} p + {c:.1f}: dw/dp",
        )


def pull_linear_system(lesson: ModuleType) -> None:
    A = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0], [1.0, 0.0, 1.0]])
    b, r = np.array([1.0, 2.0, 4.0]), np.array([1.0, -2.0, 3.0])
    answer = lesson.pull_linear_system(r.copy(), A.copy(), b.copy())
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
    random = draws("pull_linear_system")
    for n, shift in ((1, 0), (2, 0), (6, 0), (5, 2)):
        A, b, r = random.normal(size=(n, n)) + 4 * np.eye(n), 1000 * random.normal(size=n), random.normal(size=n)
        if shift:  # the equations in another order, with zeros on the diagonal
            A = np.roll(A, shift, axis=0) * (1 - np.eye(n))
        kept = A.copy(), b.copy(), r.copy()
        with np.errstate(all="ignore"):  # of a division by 0
            of_A, of_b = lesson.pull_linear_system(r, A, b)
        what = f"{n} equation{'s' * (n > 1)} with random numbers" + " and zeros on the diagonal of A" * (shift > 0)
        if not all(map(np.array_equal, (A, b, r), kept)):
            raise Wrong(f"{what}: you changed what you were given; work on copies")
        A, b, r = kept
        y = np.linalg.solve(A.T, r)
        expect(of_b, y, f"{what}: what b gets")
        expect(of_A, -np.outer(y, np.linalg.solve(A, b)), f"{what}: what A gets")


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
    random = draws("temperature_slope")
    for shape, k in (((5,), 1.0), ((2, 3), 1e4), ((2, 2, 2), 100.0)):
        # Smallest where α is s(z), a weighted sum of squares; steeper on the one side, by a share that z decides.
        z, weights = random.uniform(0.5, 1.5, size=(2, *shape))

        def loss_of_distance(a, z, weights=weights, k=k):
            distance = k * (a - sum_of(weights * z * z))
            return sum_of((1.0 - cos(distance)) * (1.0 + 0.5 * sin(distance) * cos(sum_of(z))))

        what = f"dα*/dz for logits ({', '.join(map(str, shape))}) and a loss whose valley is {k:.0f} times as narrow"
        try:
            expect(
                lesson.temperature_slope(loss_of_distance, float((weights * z * z).sum()), z),
                2 * weights * z,
                what,
            )
        except Wrong as wrong:
            if "the shape" in str(wrong):
                raise
            raise Wrong(f"{wrong}; if you take a difference of two runs: its step is too large for one valley and too "
                        "small for the next, and a derivative has none") from None  # fmt: skip


def colour_columns(lesson: ModuleType) -> None:
    notes = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]], bool)
    _check_colours(lesson, notes, "the notes' matrix (1.42), 4 by 5", 2)
    rows = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0],
                     [0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0]], bool)  # fmt: skip
    _check_colours(lesson, rows, "a matrix of 6 by 6", 3)
    late = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]], bool)  # the last column meets colour 1 before colour 0
    _check_colours(lesson, late, "a matrix of 3 by 4", 3)
    full = np.tri(12, dtype=bool)
    _check_colours(lesson, full, "a full lower triangle of 12 by 12", 12)
    _check_colours(lesson, np.zeros((3, 4), bool), "a matrix of 3 by 4 without an entry", 1)
    _check_colours(lesson, np.eye(1, dtype=bool), "a matrix of one entry", 1)
    _check_colours(lesson, np.ones((256, 2), bool), "two full columns of 256 rows", 2)
    gap = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]], bool)  # the last column meets the colours 0 and 2, not 1
    _check_colours(lesson, gap, "a matrix of 3 by 4 whose last column has only one free colour", 3)
    random = draws("colour_columns")
    for m, n in ((1, 6), (7, 3), (6, 12), (12, 9)):
        pattern = random.random((m, n)) < random.uniform(0.1, 0.4)
        enough = max(sparse.greedy_colouring(sparse.graph_of_columns(pattern), sparse.is_proper)) + 1
        _check_colours(lesson, pattern, f"a random matrix of {m} by {n}", enough)


def _check_colours(lesson: ModuleType, pattern: np.ndarray, what: str, n_enough: int) -> None:
    n = pattern.shape[1]
    colours = unchanged(lesson.colour_columns, pattern)
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
    for j, colour in enumerate(colours):
        taken = {colours[k] for k in range(j) if np.any(pattern[:, j] & pattern[:, k])}
        if (first := next(c for c in range(n) if c not in taken)) != colour:
            raise Wrong(f"{what}: column {j} has the colour {colour}, though {first} is free: no column before it has "
                        f"{first} and shares a row with it; take the columns from left to right, and give each the "
                        "first colour that is free")  # fmt: skip


def is_star(lesson: ModuleType) -> None:
    for n, edges, colours, right, sentence in _STARS:
        neighbours = [{j for edge in edges if i in edge for j in edge if j != i} for i in range(n)]
        answer = lesson.is_star(neighbours, colours)
        if answer is None:
            raise Wrong("your function returns None; is a `return` missing?")
        if bool(answer) != right:
            raise Wrong(sentence)
    random = draws("is_star")
    for n, n_colours in ((0, 1), (1, 1), *((n, k) for n in (4, 5, 6, 7) for k in (2, 3, 4) for _ in range(12))):
        pairs = itertools.combinations(random.permutation(n).tolist(), 2)
        edges = list(itertools.islice(pairs, None, None, int(random.integers(1, 4))))
        neighbours = [{j for edge in edges if i in edge for j in edge if j != i} for i in range(n)]
        colours = _nearly_proper(neighbours, n_colours, random)
        witness = _bad_path(neighbours, colours)
        shown = f"{n} vertices with the colours {colours} and the edges {sorted(map(tuple, map(sorted, edges)))}"
        answer = unchanged(lesson.is_star, neighbours, colours)
        if answer and witness:
            raise Wrong(f"{shown}: you say it is a star, but the path {'-'.join(map(str, witness))} has the colours "
                        f"{[colours[i] for i in witness]}")  # fmt: skip
        if not answer and not witness:
            raise Wrong(f"{shown}: you say it is no star, but neighbours differ, and every path of four has three "
                        "colours")  # fmt: skip


def _nearly_proper(neighbours: Sequence[set[int]], n_colours: int, random: np.random.Generator) -> list[int]:
    """Random colours; neighbours nearly always differ, where there are enough colours for it."""
    colours: list[int] = []
    for i in range(len(neighbours)):
        taken = {colours[j] for j in neighbours[i] if j < i}
        free = [c for c in range(n_colours) if c not in taken or random.random() < 0.02]
        colours.append(int(random.choice(free or [n_colours + i])))
    return colours


def _bad_path(neighbours: Sequence[set[int]], colours: Sequence[int]) -> tuple[int, ...] | None:
    """Two neighbours of one colour, or a path of four vertices with two; None if it is a star."""
    n = range(len(neighbours))
    for i, j in itertools.permutations(n, 2):
        if j in neighbours[i] and colours[i] == colours[j]:
            return i, j
    for path in itertools.permutations(n, 4):
        if len({colours[i] for i in path}) == 2 and all(b in neighbours[a] for a, b in itertools.pairwise(path)):
            return path
    return None


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
    (4, [(0, 1), (1, 2), (2, 3), (0, 3)], [0, 1, 0, 1], False,
     "a ring of four in the colours 0, 1, 0, 1: you say it is a star, but 0-1-2-3 is a path of four with two colours, "
     "though its ends are neighbours too"),
    (6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], [0, 1, 2, 1, 2, 0], False,
     "the path 0-1-2-3-4-5 in the colours 0, 1, 2, 1, 2, 0: you say it is a star, but 1-2-3-4 is a path of four with "
     "two colours; it need not begin at an end"),
    (4, [(0, 1), (0, 2), (1, 2), (2, 3)], [0, 1, 2, 0], True,
     "a triangle 0-1-2 with a tail 2-3 in the colours 0, 1, 2, 0: you say it is no star, but every path of four has "
     "three colours"),
    (6, [(0, 1), (0, 2), (3, 4), (3, 5)], [0, 1, 1, 0, 1, 1], True,
     "two paths apart, 1-0-2 and 4-3-5, both in the colours 1, 0, 1: you say it is no star, but nothing joins the one "
     "to the other, so there is no path of four"),
]  # fmt: skip


def peel(lesson: ModuleType) -> None:
    _check_peeled(lesson, 4, [(0, 1), (0, 2), (1, 3)], [0, 1, 1, 0], "the notes' matrix (1.50)")
    chain = [(i, i + 1) for i in range(1, 6)]
    hub = [(0, i) for i in range(1, 7)]
    _check_peeled(lesson, 7, hub + chain, [0, 1, 2, 1, 2, 1, 2], "a hub joined to a chain of six")
    _check_peeled(lesson, 1, [], [0], "a matrix of one entry")
    random = draws("peel")
    for n in (3, 6, 9):
        edges = [pair for pair in itertools.combinations(range(n), 2) if random.random() < 0.35]
        graph = [{j for edge in edges if i in edge for j in edge if j != i} for i in range(n)]
        colours = sparse.greedy_colouring(graph, sparse.is_acyclic)
        _check_peeled(lesson, n, edges, colours, f"a random matrix of {n} by {n}, some of whose entries are 0", 0.3)


def _check_peeled(
    lesson: ModuleType, n: int, edges: list[tuple[int, int]], colours: list[int], what: str, n_zeros: float = 0.0
) -> None:
    """`n_zeros` is the share of the pattern that happens to be 0, and of the diagonal that is not in the pattern."""
    random = draws(f"peel {n}")
    pattern = np.diag(random.random(n) >= n_zeros)
    H = np.diag(random.uniform(1, 9, n).round(1)) * pattern
    for i, j in edges:
        pattern[i, j] = pattern[j, i] = True
        H[i, j] = H[j, i] = random.uniform(1, 9) * (random.random() >= n_zeros)
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

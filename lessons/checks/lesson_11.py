"""Checks of lesson 11. Each begins with an example in which known mistakes show, and goes on to random ones."""

from __future__ import annotations

import math
from itertools import combinations
from types import ModuleType

import numpy as np

from pellucid.course.checks import Wrong, draws, expect

# ---- Counted ----


def count_parameters(lesson: ModuleType) -> None:
    shape = {"V": 1009, "L": 3, "D": 24, "H": 6, "G": 2, "F": 50}
    per_layer = sum((24 * 24, 24 * 8, 24 * 8, 24 * 24, 24 * 50, 50 * 24))  # W_Q, W_K, W_V, W_O, up, down
    per_layer_alike, table = per_layer + 2 * 24 * 16, 1009 * 24
    per_layer_wide = 2 * 24 * 6 * 24 + 2 * 24 * 2 * 24 + 2 * 24 * 50
    of_layers = 3 * per_layer
    wide = "every head has D columns: the heads share the width, so each has only K = D/H"
    alike = "you gave keys and values as many heads as queries: here 6 heads ask, and 2 answer"
    expect(
        lesson.count_parameters(**shape, tied=False),
        of_layers + 2 * table,
        "the parameters of an untied decoder",
        [
            (of_layers + table, "one table of VD weights is missing: untied, there is one to read and one to write"),
            (of_layers, "only the layers are counted; tokens come in and go out through tables of VD weights"),
            (3 * per_layer_wide + 2 * table, wide),
            (3 * per_layer_alike + 2 * table, alike),
            (
                of_layers - 3 * 24 * 50 + 2 * table,
                "the feed-forward layer has one matrix; it needs one up to F and one back to D",
            ),
            (per_layer + 2 * table, "you count one layer; there are 3"),
            (
                of_layers - 3 * 2 * 24 * 16 + 2 * table,
                "you gave queries and output only G heads; G counts keys and values, and here 6 heads ask",
            ),
            (3 * (4 * 6 * 24 * 24 + 2 * 24 * 50) + 2 * table, wide),
            (
                of_layers - 3 * 24 * 24 + 2 * table,
                "W_O is missing: after the heads have been put together, one more matrix mixes them",
            ),
            (of_layers + 3 * 24 * 16 + 2 * table, "only your keys have G heads; the values have G heads as well"),
            (of_layers + 7 * 24 + 2 * table, "you count the gains of the norms; only the matrices count here"),
            (of_layers + 3 * 2 * 24 * (96 - 50) + 2 * table, "you take F to be 4D; F is given, and here it is 50"),
            (3 * (per_layer + 2 * table), "every layer has an embedding of its own; the model has one for all"),
        ],
    )
    expect(
        lesson.count_parameters(**shape, tied=True),
        of_layers + table,
        "the parameters of a tied decoder",
        [(of_layers + 2 * table, "you count the embedding twice: tied, it is one table with two uses")],
    )
    rng = draws("count_parameters")
    for heads_each in (1, 2, 5):
        G, K, L, V, F = (int(n) for n in rng.integers(1, [6, 9, 7, 900, 200]))
        H = heads_each * G
        D, V = H * K, 1 if heads_each == 2 else V
        one_layer = 2 * D * H * K + 2 * D * G * K + 2 * D * F
        for tied in (False, True):
            what = f"V = {V}, L = {L}, D = {D}, H = {H}, G = {G}, F = {F}, {'tied' if tied else 'untied'}"
            slips = [(L * (2 * D * D + 4 * D * K + 2 * D * F) + (2 - tied) * V * D, f"{what}: you take G to be 2")]
            expect(lesson.count_parameters(V, L, D, H, G, F, tied), L * one_layer + (2 - tied) * V * D, what, slips)
    V, L, D, H, F = 50_257, 96, 12_288, 96, 49_152
    right = L * (4 * D * D + 2 * D * F) + V * D
    for bits in (31, 32):  # a count in numbers of 32 bits starts again from 0, or from the least of them
        slips = [(part % 2**bits + rest, "the parameters of GPT-3: your count is too large for whole numbers of 32 "
                  "bits, and starts again from 0; Python's own have no end")
                 for part, rest in ((right - V * D, V * D), (right, 0))]  # fmt: skip
        expect(lesson.count_parameters(V, L, D, H, H, F, True), right, "the parameters of GPT-3", slips)


def training_flops(lesson: ModuleType) -> None:
    V, L, D, F, T, n = 211, 5, 20, 70, 48, 960
    of_layers, table, pairs = L * (4 * D * D + 2 * D * F), V * D, L * 2 * T * D
    right = 6 * (of_layers + table + pairs) * n
    expect(
        lesson.training_flops(V, L, D, F, T, n),
        right,
        "the FLOPs of training",
        [
            (right // 3, "that is the way forward alone, 2 FLOPs per weight; back costs twice as much again"),
            (right // 3 * 2, "4 FLOPs per weight: the way back has two products for each one of the way forward"),
            (right // 2, "3 FLOPs per weight: each product of two numbers is followed by a sum, so there are 6"),
            (
                6 * (of_layers + table) * n,
                "6 FLOPs per weight, and no pairs: queries times keys, and shares times values, have no weights but "
                "cost all the same",
            ),
            (
                6 * (of_layers + table + pairs // 2) * n,
                "half of the pairs: there are two products, queries times keys and shares times values, and in both "
                "a query meets all T keys, the hidden ones too",
            ),
            (
                6 * (of_layers + table) * n + 6 * L * (T + 1) * D * n,
                "you count only the pairs that the mask leaves, (T + 1)/2 for each query; the product is made of all "
                "T, and the mask hides some of the results",
            ),
            (
                right + 2 * V * D * n,
                "you count the embedding as a product: it reads one row, and multiplies nothing",
            ),
            (
                6 * (of_layers + 2 * table + pairs) * n,
                "you count the embedding as a product: it reads one row, and multiplies nothing",
            ),
            (6 * (of_layers + pairs) * n, "the unembedding is missing: it multiplies each position by VD weights"),
            (
                6 * (of_layers + table + pairs * T) * n,
                "you count the T² pairs of a whole text for each token; a token has one query, so T pairs",
            ),
            (
                6 * (of_layers + table + pairs // L) * n,
                "the pairs of one layer; each layer has its own attention",
            ),
            (
                (6 * (of_layers + table) + 2 * pairs) * n,
                "you count the pairs forward only; the pairs are on the way back, too, though no weight is there",
            ),
            (
                (6 * (of_layers + table) + 4 * pairs) * n,
                "on the way back, each product needs two more, one for each of its factors: queries and keys both get "
                "a gradient",
            ),
            (
                6 * (of_layers + table + pairs // T * n) * n,
                "all n_tokens as one text: a query meets the T keys of its own text",
            ),
            (6 * (L * 12 * D * D + table + pairs) * n, "you take F to be 4D; F is given, and here it is 70"),
            (6 * (of_layers + L * table + pairs) * n, "you count an unembedding in each layer; the model has one"),
            (right * T, "n_tokens are all tokens, and you have counted each of them T times"),
        ],
        tolerance=1e-12,
    )
    rng = draws("training_flops")
    for V, D, n_texts in ((0, int(rng.integers(1, 60)), 1), (50_257, 12_289, int(rng.integers(2, 9)))):
        L, F, T = (int(n) for n in rng.integers(2, [9, 200, 90]))
        right = 6 * n_texts * T * (L * (4 * D * D + 2 * D * F + 2 * T * D) + V * D)
        what = f"V = {V}, L = {L}, D = {D}, F = {F}, {n_texts * T} tokens in texts of T = {T}"
        expect(lesson.training_flops(V, L, D, F, T, n_texts * T), right, what, tolerance=1e-12)
    right = 6 * (L * (4 * D * D + 2 * D * F + 2 * T * D) + V * D)
    what = f"1 token of a text of T = {T}"
    slips = [(wrong, f"{what}: you count in whole texts; so much for each token, and here it is one")
             for wrong in (0, T * right)]  # fmt: skip
    expect(lesson.training_flops(V, L, D, F, T, 1), right, what, slips, tolerance=1e-12)


def memory_bytes(lesson: ModuleType) -> None:
    w, a = 1000, 7300
    one_moment = "the optimizer has one number per weight; Adam keeps two, the mean of gradients and that of squares"
    answer = lesson.memory_bytes(w, a, 4)
    if answer is not None and np.shape(answer) != (4,):
        raise Wrong(
            "four numbers are expected: weights, gradients, optimizer, activations. The weights alone are "
            "enough to use a model, not to train it"
        )
    expect(
        answer,
        [4 * w, 4 * w, 8 * w, 4 * a],
        "bytes of weights, gradients, optimizer, activations",
        [
            ([4 * w, 4 * w, 4 * w, 4 * a], one_moment),
            ([w, w, 2 * w, a], "these are numbers, not bytes: each takes 4"),
            ([4 * w, 0, 0, 0], "only the weights: that is enough to use a model, but training also needs the rest"),
            ([4 * w, 0, 8 * w, 4 * a], "no gradients: the optimizer needs one number for each weight"),
            ([4 * w, 4 * a, 8 * w, 4 * a], "there is a gradient for each weight, not for each activation"),
            ([4 * w, 8 * w, 4 * w, 4 * a], "the gradients come second, and the optimizer third"),
            ([4 * w, 4 * w, 8 * w, 4 * w * a], "`n_activations` is the number of all activations together"),
            (
                [4 * w, 4 * (w + a), 8 * w, 4 * a],
                "the gradient of an activation is used on the way back and let go; only those of the weights are kept",
            ),
            ([4 * w, 4 * w, 12 * w, 4 * a], "the optimizer's part should be its two moments; the gradients are part 2"),
        ],
    )
    expect(
        lesson.memory_bytes(w, a, 2),
        [2 * w, 2 * w, 4 * w, 2 * a],
        "the bytes when each number takes 2",
        [
            ([4 * w, 4 * w, 8 * w, 4 * a], "you ignore `bytes_each`, which is 2 here"),
            ([2 * w, 2 * w, 8 * w, 2 * a], "Adam's two numbers are as wide as all others; here each takes 2 bytes"),
        ],
    )
    rng = draws("memory_bytes")
    for width in (1, 8):
        w, a = (int(n) for n in rng.integers(1, 10_000, size=2))
        right = [width * w, width * w, width * 2 * w, width * a]
        expect(lesson.memory_bytes(w, a, width), right, f"{w} weights, {a} activations, each of {width} bytes")


# ---- Traded ----


def accumulated_gradient(lesson: ModuleType) -> None:
    random = np.random.default_rng(9)
    examples = random.standard_normal((9, 2, 3)) + 1.0
    pieces = [list(examples[:1]), list(examples[1:3]), list(examples[3:])]
    largest = 0

    def gradient_of_sum(piece):
        nonlocal largest
        largest = max(largest, len(piece))
        return np.sum(piece, axis=0)

    try:
        answer = lesson.accumulated_gradient(gradient_of_sum, list(pieces))
    except (ValueError, IndexError, TypeError) as error:
        raise Wrong(f"gradients of 2 rows and 3 columns: Python says “{error}”; a gradient may have any shape, and the "
                    "sum has the same") from None  # fmt: skip
    if largest > 6:
        raise Wrong(f"you put {largest} examples together at once; only one piece, of up to 6, fits into memory")
    sums = [np.sum(piece, axis=0) for piece in pieces]
    expect(
        answer,
        np.mean(examples, axis=0),
        "the gradient of pieces of 1, 2 and 6 examples",
        [
            (
                np.mean([s / len(p) for s, p in zip(sums, pieces, strict=True)], axis=0),
                "a mean of means: the example that is alone in its piece counts as much as the six of another together",
            ),
            (np.sum(sums, axis=0), "the sum over all nine examples, not yet their mean: the step is nine times longer"),
            (
                np.mean(sums, axis=0),
                "you divide by the number of pieces, 3; the mean is over all examples, and there are 9",
            ),
            (np.sum([s / len(p) for s, p in zip(sums, pieces, strict=True)], axis=0),
             "a sum of means: each piece counts alike, and three pieces make the step three times as long"),
            (sums[-1] / 6, "only the last piece is left: each piece must add to what came before"),
        ],
        tolerance=1e-12,
    )  # fmt: skip
    rng = draws("accumulated_gradient")
    for n_pieces, shape in ((1, ()), (2, (3,)), (5, (2, 3))):
        sizes = rng.integers(1, 8, size=n_pieces)
        if n_pieces == 1:
            sizes[0] = 1
        else:
            sizes[-1] += 1 + sizes[0]  # never all alike
        pieces = [list(rng.standard_normal((size, *shape))) for size in sizes]
        what = f"pieces of {', '.join(map(str, sizes))} examples, with gradients of shape {shape}"
        owner = {example.tobytes(): i for i, piece in enumerate(pieces) for example in piece}
        kept: list[tuple[np.ndarray, np.ndarray]] = []  # each gradient that was handed out, and what it was

        def gradient_of_sum(piece, owner=owner, kept=kept):
            if len({owner.get(np.asarray(example).tobytes()) for example in piece}) > 1:
                raise Wrong("examples of two pieces in one call: only one piece at a time fits into memory")
            kept.append((np.array(np.sum(piece, axis=0)), np.array(np.sum(piece, axis=0))))
            return kept[-1][0]

        try:
            given = list(pieces)
            answer = lesson.accumulated_gradient(gradient_of_sum, given)
        except (ValueError, IndexError, TypeError) as error:
            raise Wrong(f"{what}: Python says “{error}”; the number of pieces may be any, and so may the shape of a "
                        "gradient") from None  # fmt: skip
        if len(given) < len(pieces):
            raise Wrong("you take the pieces out of the list that you are given, as `pop` does; who needs the batch "
                        "again finds it empty")  # fmt: skip
        if not all(np.array_equal(now, then) for now, then in kept):
            raise Wrong("you write into an array that `gradient_of_sum` has returned, as `total += …` does if `total` "
                        "is that array; it may still be needed, so make a new one: `total = total + …`")  # fmt: skip
        everything = np.sum([example for piece in pieces for example in piece], axis=0)
        slips = [(everything / 9, f"{what}: you divide by 9, the number of examples in the first batch")]
        expect(answer, everything / sizes.sum(), what, slips, tolerance=1e-12)


def operations_to_keep(lesson: ModuleType) -> None:
    cases = [
        (
            [5, 2, 4, 3],
            [9.0, 1.0, 6.0, 4.0],
            5,
            "results of 5, 2, 4 and 3 bytes, of 9, 1, 6 and 4 seconds, and 5 bytes",
        ),
        ([4, 3, 3], [5.0, 4.0, 4.0], 6, "three results of 4, 3 and 3 bytes, of 5, 4 and 4 seconds, and 6 bytes"),
        ([1, 10], [2.0, 10.0], 10, "two results of 1 and 10 bytes, of 2 and 10 seconds, and 10 bytes"),
        ([5, 2, 4, 3], [9.0, 1.0, 6.0, 4.0], 0, "a budget of 0"),
        ([5, 2, 4, 3], [9.0, 1.0, 6.0, 4.0], 99, "a budget for everything"),
    ]
    random = np.random.default_rng(9)
    for _ in range(6):
        n_bytes, seconds = (
            random.integers(1, 20, size=9).tolist(),
            random.integers(1, 30, size=9).astype(float).tolist(),
        )
        cases.append((n_bytes, seconds, int(sum(n_bytes) * 0.45), "nine results"))
    cases += [([], [], 5, "no results at all"), ([7], [2.0], 7, "one result that just fits"), *_hard_cases()]
    rng = draws("operations_to_keep")
    for _ in range(3):
        n_bytes, seconds = rng.integers(1, 20, size=7).tolist(), rng.uniform(1e-4, 9e-4, size=7).tolist()
        cases.append(
            (n_bytes, seconds, int(sum(n_bytes) * 0.45), "seven results, each within a thousandth of a second")
        )
    for n_bytes, seconds, budget, what in cases:
        try:
            given = list(n_bytes), list(seconds)
            answer = lesson.operations_to_keep(*given, budget)
        except (ValueError, IndexError) as error:
            if any(n <= budget for n in n_bytes):
                raise
            raise Wrong(f"{what}: nothing can be kept, so the answer is []; yours comes to no end, as Python says "
                        f"“{error}”. To keep nothing is a choice, too") from None  # fmt: skip
        if answer is None:
            raise Wrong(f"{what}: your function returns None; is a `return` missing?")
        if given != (n_bytes, seconds):
            raise Wrong("you change the lists that you are given, as `sort` and `pop` do: an operation's number is its "
                        "place in them; `sorted` makes a new list")  # fmt: skip
        kept = [int(i) for i in answer]
        if any(not 0 <= i < len(n_bytes) for i in kept):
            raise Wrong(f"{what}: you keep {kept}, but the operations have the numbers 0 to {len(n_bytes) - 1}")
        if len(set(kept)) < len(kept):
            raise Wrong(f"{what}: you keep {kept}; a result that is kept more than once saves its seconds only once")
        if kept != sorted(kept):
            raise Wrong(f"{what}: {kept} is right or not, but it should be in rising order")
        _compare(kept, n_bytes, seconds, budget, what)


def _compare(kept: list[int], n_bytes: list[int], seconds: list[float], budget: int, what: str) -> None:
    everything = range(len(n_bytes))
    used, again = sum(n_bytes[i] for i in kept), sum(seconds[i] for i in everything if i not in kept)
    subsets = [set(s) for n in range(len(n_bytes) + 1) for s in combinations(everything, n)]
    fitting = [s for s in subsets if sum(n_bytes[i] for i in s) <= budget]
    least = min(sum(seconds[i] for i in everything if i not in s) for s in fitting)
    if used > budget:
        if math.isclose(sum(seconds[i] for i in kept), least):
            raise Wrong(f"{what}: these are the ones to compute again; the ones to keep were asked for")
        raise Wrong(f"{what}: what you keep takes {used} bytes; the budget is {budget}")
    if math.isclose(again, least):
        return
    slowest = _greedy(sorted(everything, key=lambda i: -seconds[i]), n_bytes, budget)
    densest = _greedy(sorted(everything, key=lambda i: -seconds[i] / n_bytes[i]), n_bytes, budget)
    smallest = _greedy(sorted(everything, key=lambda i: n_bytes[i]), n_bytes, budget)
    below = [s for s in fitting if sum(n_bytes[i] for i in s) < budget]
    least_below = min((sum(seconds[i] for i in everything if i not in s) for s in below), default=math.inf)
    tail = f"you compute {again:g} seconds again, and {least:g} would do"
    if kept == densest:
        raise Wrong(
            f"{what}: you keep those that save most seconds per byte, and part of the budget stays empty; {tail}"
        )
    if kept == slowest:
        raise Wrong(f"{what}: you keep the slowest first, and a large one pushes out two smaller ones; {tail}")
    if kept == smallest:
        raise Wrong(f"{what}: you keep as many as possible, the smallest first, and small is not slow; {tail}")
    if kept in [guess(n_bytes, seconds, budget) for guess in (_by_swaps, _with_the_best_first, _by_beam)]:
        raise Wrong(f"{what} ({n_bytes} bytes, {seconds} seconds, budget {budget}): a good guess, mended here and "
                    f"there; the best choice differs in several results at once; {tail}")  # fmt: skip
    if math.isclose(again, least_below):
        raise Wrong(f"{what}: the budget may be used up to its last byte; {tail}")
    raise Wrong(f"{what}: {tail}")


def _greedy(order: list[int], n_bytes: list[int], budget: int) -> list[int]:
    kept = []
    for i in order:
        if n_bytes[i] <= budget:
            budget -= n_bytes[i]
            kept.append(i)
    return sorted(kept)


def _hard_cases() -> list[tuple[list[int], list[float], int, str]]:
    """Random instances on which guessing by a rule, and mending the guess by swaps, does not find the best."""
    rng = draws("operations_to_keep")
    guesses = {_by_swaps: 3, _with_the_best_first: 3, _by_beam: 3}  # how many more on which each is to fail
    found = []
    for _ in range(600):
        n_bytes, seconds = rng.integers(3, 25, size=10).tolist(), rng.integers(3, 30, size=10).astype(float).tolist()
        budget = int(sum(n_bytes) * rng.uniform(0.3, 0.7))
        chosen = (np.arange(1024)[:, None] >> np.arange(10)) & 1
        most = np.where(chosen @ n_bytes <= budget, chosen @ seconds, 0).max()
        fail = [guess for guess in guesses if sum(seconds[i] for i in guess(n_bytes, seconds, budget)) < most]
        if any(guesses[guess] > 0 for guess in fail):
            found.append((n_bytes, seconds, budget, "ten results"))
            for guess in fail:
                guesses[guess] -= 1
        if max(guesses.values()) <= 0:
            break
    return found


def _by_swaps(n_bytes: list[int], seconds: list[float], budget: int) -> list[int]:
    """The densest first; then one is exchanged for another, and the rest filled up, as long as that is better."""
    by_density = sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i])

    def filled(kept: set[int]) -> set[int]:
        left = budget - sum(n_bytes[i] for i in kept)
        return kept | set(_greedy([i for i in by_density if i not in kept], n_bytes, left))

    def saved(kept: set[int]) -> float:
        return sum(seconds[i] for i in kept)

    kept = filled(set())
    while True:
        left = budget - sum(n_bytes[i] for i in kept)
        swaps = [filled(kept - {i} | {j}) for i in kept for j in by_density
                 if j not in kept and n_bytes[j] - n_bytes[i] <= left]  # fmt: skip
        better = max(swaps, key=saved, default=kept)
        if saved(better) <= saved(kept):
            return sorted(kept)
        kept = better


def _with_the_best_first(n_bytes: list[int], seconds: list[float], budget: int) -> list[int]:
    """The densest first, but for one, which each is once: the best of these."""
    by_density = sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i])
    each_first = [_greedy([i, *(j for j in by_density if j != i)], n_bytes, budget) for i in by_density]
    return max(each_first, key=lambda kept: sum(seconds[i] for i in kept), default=[])


def _by_beam(n_bytes: list[int], seconds: list[float], budget: int) -> list[int]:
    """The densest first, each kept or not; of all that has been tried, the eight that save most go on."""
    best: list[tuple[float, int, list[int]]] = [(0.0, 0, [])]
    for i in sorted(range(len(n_bytes)), key=lambda i: -seconds[i] / n_bytes[i]):
        with_it = [(saved + seconds[i], used + n_bytes[i], [*kept, i]) for saved, used, kept in best]
        best = sorted([*best, *(each for each in with_it if each[1] <= budget)], key=lambda each: -each[0])[:8]
    return sorted(best[0][2])


def kv_cache_bytes(lesson: ModuleType) -> None:
    n, L, D, H, G, width = 70, 5, 24, 6, 2, 3
    K = 4
    right = n * L * G * K * 2 * width
    expect(
        lesson.kv_cache_bytes(n, L, D, H, G, width),
        right,
        "the cache of 70 tokens",
        [
            (right // 2, "half of it: a token leaves a key and a value"),
            (
                n * L * H * K * 2 * width,
                "D numbers for a key: either you keep one for each query head, but 3 of them share a key here, and a "
                "value; or you cut D by G, but a head has K = D/H numbers, however many share it",
            ),
            (n * L * (G + H) * K * width, "only the keys, or only the values, are shared here; both are"),
            (
                (right // width + n * L * H) * width,
                "the shares are computed and forgotten: the next query has others",
            ),
            (right // n * (n - 1), "the newest token leaves a key and a value, too: the next one looks at them"),
            (right // L, "one layer's cache; each layer has its own keys and values"),
            (right // width, "these are numbers, not bytes"),
            (right * n, "n² tokens: the pairs are computed and forgotten, only keys and values are kept"),
            (
                n * L * (2 * G + H) * K * width,
                "the queries are not kept: nobody asks again, and later tokens need only keys and values",
            ),
            (right // width * 2, "you ignore `bytes_each`, which is 3 here"),
            (n * L * G * D * 2 * width, "each key is D wide; a head's key has K = D/H numbers"),
        ],
    )
    expect(lesson.kv_cache_bytes(7, 3, 20, 5, 5), 2 * 7 * 3 * 20 * 2, "the cache with as many key heads as query heads")
    rng = draws("kv_cache_bytes")
    for n, width in ((0, 2), (int(rng.integers(1, 400)), 1), (int(rng.integers(1, 400)), 8)):
        L, G, K, heads_each = (int(each) for each in rng.integers(1, [9, 6, 9, 5]))
        G = 1 if n == 0 else G
        H = G * heads_each
        what = f"{n} tokens, L = {L}, D = {H * K}, H = {H}, G = {G}, {width} bytes each"
        expect(lesson.kv_cache_bytes(n, L, H * K, H, G, width), 2 * n * L * G * K * width, what)


# ---- Bought ----


def fit_with_known_floor(lesson: ModuleType) -> None:
    sizes, floor = np.array([3e2, 1e3, 8e3, 2e4, 9e4]), 0.7
    off = np.exp([0.05, -0.1, 0.08, 0.02, -0.04])
    losses = floor + 5.0 * sizes**-0.3 * off
    slope, height = np.polyfit(np.log(sizes), np.log(losses - floor), 1)
    s_loss, h_loss = np.polyfit(np.log(sizes), np.log(losses), 1)
    s_plain, h_plain = np.polyfit(sizes, losses - floor, 1)
    s_half, h_half = np.polyfit(sizes, np.log(losses - floor), 1)
    s_late, h_late = np.polyfit(np.log(sizes), np.log(losses) - floor, 1)
    s_turned, h_turned = np.polyfit(np.log(losses - floor), np.log(sizes), 1)
    s_ends = np.log((losses[-1] - floor) / (losses[0] - floor)) / np.log(sizes[-1] / sizes[0])
    h10 = height / math.log(10)
    A, alpha = math.exp(height), -slope
    given = sizes.copy(), losses.copy()
    answer = lesson.fit_with_known_floor(*given, floor)
    if not np.array_equal(given, (sizes, losses)):
        raise Wrong("you write into the arrays that you are given, as `losses -= floor` does: the next fit gets what "
                    "you have left; make a new array")  # fmt: skip
    if answer is not None and np.shape(answer) != (2,):
        raise Wrong("two numbers are expected, A and alpha")
    expect(
        answer,
        [A, alpha],
        "A and alpha",
        [
            (
                [math.exp(h_loss), -s_loss],
                "you fitted the logarithm of the loss itself: with a floor that is no straight line. The excess falls "
                "as a power",
            ),
            ([height, alpha], "alpha is right, but A is still a logarithm"),
            ([h10, alpha], "alpha is right, but A is still a logarithm"),
            ([A, slope], "alpha is the slope itself, -0.31; the law has a minus of its own, so alpha is positive"),
            ([alpha, A], "A comes first, then alpha"),
            ([math.exp(h10), alpha], "the logarithms have base 10, so A is 10 to the height of the line, not e"),
            ([10**height, alpha], "the logarithms have base e, so A is e to the height of the line, not 10"),
            ([math.exp(h_late), -s_late], "first subtract the floor, then take the logarithm"),
            ([math.exp(slope), -height], "`np.polyfit` gives the slope first, then the height"),
            (
                [math.exp(h_turned), -s_turned],
                "you have exchanged the axes: the sizes are given, and the excess follows from them",
            ),
            (
                [(losses[0] - floor) * sizes[0] ** -s_ends, -s_ends],
                "your line goes through the first run and the last; all runs should have a say",
            ),
            ([h_plain, -s_plain], "you fitted a line to the excess as it is; the law is a line after two logarithms"),
            (
                [math.exp(h_half), -s_half],
                "one logarithm only: a line there is an exponential law. A power law needs the logarithm of the sizes, "
                "too",
            ),
        ],
        tolerance=1e-8,
    )
    rng = draws("fit_with_known_floor")
    for floor in (0.0, float(rng.uniform(0.2, 2.0))):
        sizes = np.sort(np.exp(rng.uniform(5, 30, size=int(rng.integers(6, 10)))))
        excess = rng.uniform(1, 9) * sizes ** -rng.uniform(0.05, 0.4) * np.exp(0.1 * rng.standard_normal(len(sizes)))
        excess[2] = 1.2 * excess[1]  # a larger run that is worse
        slope, height = np.polyfit(np.log(sizes), np.log(excess), 1)
        s_sorted, h_sorted = np.polyfit(np.log(sizes), np.log(np.sort(excess)[::-1]), 1)
        mixed = rng.permutation(len(sizes))
        mixed[mixed == 0], mixed[0] = mixed[0], 0  # the first is cheapest, but the others come in any order
        sizes, excess = sizes[mixed], excess[mixed]
        s_alone, h_alone = np.polyfit(np.log(np.sort(sizes)), np.log(excess), 1)
        s_07 = np.polyfit(np.log(sizes), np.log(np.maximum(floor + excess - 0.7, 1e-9)), 1)
        what = f"A and alpha of {len(sizes)} other runs, with the floor {floor:.2f}"
        slips = [([math.exp(s_07[1]), -s_07[0]], f"{what}: you take the floor to be 0.7"),
                 ([math.exp(h_sorted), -s_sorted], f"{what}: you sort sizes and losses, each by itself; a loss belongs "
                                                   "to its own size, and a larger run may be worse"),
                 ([math.exp(h_alone), -s_alone], f"{what}: you sort the sizes, but not the losses with them; the runs "
                                                 "may come in any order")]  # fmt: skip
        answer = lesson.fit_with_known_floor(sizes.copy(), floor + excess, floor)
        expect(answer, [math.exp(height), -slope], what, slips, tolerance=1e-6)

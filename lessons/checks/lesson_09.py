"""Checks of lesson 9. Every right answer is computed here by plain loops over positions.

Each check begins with an example in which known mistakes show, and goes on to random ones of other sizes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from pellucid.course.checks import Wrong, call, draws, expect

Array = np.ndarray


def _has_nan(answer: Any) -> bool:
    try:
        return bool(np.isnan(np.asarray(answer, dtype=float)).any())
    except (TypeError, ValueError):
        return False


_TOO_LARGE = ("{}: there are NaN. A softmax that begins with e to the power of a score cannot hold e^1000; the one in "
              "your file first subtracts the largest score of the row")  # fmt: skip


def _numbers(*shape: int, seed: int = 7, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(seed).standard_normal(shape)


def _shares(scores: Array) -> Array:
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def _softmax(scores: Array, axis: int = -1) -> Array:
    return np.apply_along_axis(_shares, axis, scores)


def _causal(scores_TS: Array) -> Array:
    """The weights of one table of scores, row by row: each query sees the keys up to its own place."""
    T, S = scores_TS.shape
    weights_TS = np.zeros((T, S))
    for t in range(T):
        n_seen = S - T + t + 1
        weights_TS[t, :n_seen] = _shares(scores_TS[t, :n_seen])
    return weights_TS


# ---- One head ----


def head(lesson: ModuleType) -> None:
    T, D, K = 5, 7, 4
    x = _numbers(T, D)
    W_Q, W_K, W_V = (_numbers(K, D, seed=seed, scale=0.4) for seed in (1, 2, 3))
    answer = lesson.head(x, W_Q, W_K, W_V)
    if answer is None:
        raise Wrong("the head: your function returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("the head: two arrays are expected, the weights and the outputs")
    weights, outputs = answer
    q, k, v = ([W @ row for row in x] for W in (W_Q, W_K, W_V))
    products = np.array([[q[t] @ k[s] for s in range(T)] for t in range(T)])
    right = _softmax(products / K**0.5)
    over_queries = _softmax(products / K**0.5, axis=0)
    if np.shape(weights) == (T, K) and np.shape(outputs) == (T, T):
        raise Wrong("the weights come first, then the outputs")
    if np.shape(outputs) == (T, D):
        raise Wrong("you mixed the rows of x: what position s hands over is its value, W_V times row s of x")
    expect(
        weights,
        right,
        "the weights",
        [
            (
                over_queries,
                f"the columns sum to 1, not the rows: your softmax runs over the queries. Query 0 now takes "
                f"{over_queries[0].sum():.2f} in all, but each query has exactly 1 to share among the keys",
            ),
            (over_queries.T, "your weights have a row for each key; a row should be what one query takes"),
            (
                right.T,
                "your table is turned: a row should be what one query takes, and yours is what is taken from one "
                "key. Lecture notes N0, (2.11), has the queries in the columns",
            ),
            (
                _softmax(products),
                "you don't scale the scores: they are sums of K = 4 products, so their variance is 4 times too large",
            ),
            (
                _softmax(products / D**0.5),
                "you divide by √7, the width of x; a score is a sum of K = 4 products, so its deviation is √4",
            ),
            (_softmax(products / K), "you divide by K; the variance of a sum of K products is K, its deviation √K"),
            (
                _softmax(products) / K**0.5,
                "you divide after the softmax: each query now shares out 1/√K instead of 1; the root belongs to the "
                "scores",
            ),
            (
                _softmax(products / T**0.5),
                "you divide by √5, the number of positions; a score is a sum of K = 4 products, so its deviation is √4",
            ),
            (products / K**0.5, "these are scores; no softmax has made shares of them"),
            (
                np.exp(products / K**0.5) / np.exp(products / K**0.5).sum(axis=1),
                "you divide column s by the sum of row s: NumPy lays a row of sums over the rows; keep the axis that "
                "you sum over",
            ),
        ],
    )
    expect(
        outputs,
        right @ np.array(v),
        "the outputs",
        [
            (right.T @ np.array(v), "output t should be the mean with the weights of row t; you took column t"),
            (right @ np.array(k), "you mixed the keys; a key is there to be found, what is handed over is the value"),
        ],
    )
    rng = draws("head")
    for largest in (3.0, 20_000.0):
        T, D, K = (int(n) for n in rng.choice([3, 5, 7, 9, 11], 3, replace=False))
        x, (W_Q, W_K, W_V) = rng.standard_normal((T, D)), rng.standard_normal((3, K, D))
        W_Q *= _factor_to(largest, _products(x, x, W_Q, W_K))
        what = f"another head, T = {T} and K = {K}, with scores up to {largest:,.0f}"
        answer = call(what, lesson.head, x, W_Q, W_K, W_V)
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise Wrong(f"{what}: two arrays are expected, the weights and the outputs")
        if _has_nan(answer[0]):
            raise Wrong(_TOO_LARGE.format(what))
        products = _products(x, x, W_Q, W_K)
        right = _softmax(products / K**0.5)
        expect(answer[0], right, f"{what}: the weights", [(_softmax(products / 2), _ROOT.format(K))], tolerance=1e-6)
        expect(answer[1], right @ np.array([W_V @ row for row in x]), f"{what}: the outputs", tolerance=1e-6)


def _products(x: Array, source: Array, W_Q: Array, W_K: Array) -> Array:
    return np.array([[(W_Q @ row) @ (W_K @ other) for other in source] for row in x])


def _factor_to(largest: float, products: Array) -> float:
    """What makes the largest score, in size, be `largest`, before the root."""
    return float(largest / products.flat[np.abs(products).argmax()])


_ROOT = "you divide by 2, which was √K in the first example; here K is {}, the number of rows of W_Q"


def causal_weights(lesson: ModuleType) -> None:
    with np.errstate(all="ignore"):
        _causal_weights_of_a_square(lesson)
        _causal_weights_with_a_cache(lesson)
    rng = draws("causal_weights")
    for before in ((), (2,), (2, 1, 3)):
        T = int(rng.integers(2, 6))
        S = T + int(rng.integers(4))
        _causal_weights_of_any(lesson, rng, (*before, T, S))
    _causal_weights_of_any(lesson, rng, (2, 1, int(rng.integers(2, 6))))


def _causal_weights_of_any(lesson: ModuleType, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    T, S = shape[-2:]
    scores = 2 * rng.standard_normal(shape)
    is_future = np.arange(S) > np.arange(S - T, S)[:, None]
    right = np.array([_causal(table) for table in scores.reshape(-1, T, S)]).reshape(shape)
    what = f"T = {T} and S = {S}, in an array with {len(shape)} axes"
    expect(call(what, lesson.causal_weights, scores), right, what)

    even = np.array([_causal(table) for table in np.zeros((right.size // (T * S), T, S))]).reshape(shape)
    answer = call(what, lesson.causal_weights, np.zeros(shape))
    if _has_nan(answer):
        raise Wrong(f"{what}, all scores 0: there are NaN. A score of 0 is one like any other; only what lies ahead is "
                    "hidden")  # fmt: skip
    expect(answer, even, f"{what}, all scores 0")

    low = scores + np.linspace(-1e6, 1e6, T)[:, None]
    answer = call(what, lesson.causal_weights, low)
    if _has_nan(answer):
        raise Wrong(f"{what}: with a million more or less on all scores of a row, the weights should stay, but some "
                    "are NaN: e^1000000 is inf, and e^-1000000 is 0. The softmax in your file first subtracts the "
                    "largest score of each row")  # fmt: skip
    _expect_none_ahead(answer, is_future, f"{what}, with scores down to -1,000,000")
    expect(answer, right, f"{what}, with a million more or less on all scores of a row", tolerance=1e-7)

    answer = call(what, lesson.causal_weights, np.where(is_future, scores + 20_000, scores))
    _expect_none_ahead(answer, is_future, f"{what}, with 20,000 more on each score of the future")
    if _has_nan(answer):
        raise Wrong(f"{what}, with 20,000 more on each score of the future: there are NaN. You hide the future after "
                    "the softmax, where it has left nothing to the others that one could divide")  # fmt: skip
    answer = call(what, lesson.causal_weights, np.where(is_future, scores + 300, scores))
    _expect_none_ahead(answer, is_future, what)
    expect(answer, right, f"{what}: with 300 more on each score of the future, which must not matter", tolerance=1e-7)

    answer = call(what, lesson.causal_weights, np.full(shape, -1e12))
    _expect_none_ahead(answer, is_future, f"{what}, all scores -10¹²")
    expect(answer, even, f"{what}, all scores -10¹²")


def _expect_none_ahead(answer: Any, is_future: Array, what: str) -> None:
    if np.shape(answer)[-2:] == is_future.shape:
        ahead = np.nan_to_num(np.where(is_future, answer, 0.0)).max()
        if ahead > 1e-10:
            raise Wrong(f"{what}: a share of {ahead:.2g} goes to the future. What you put in place of a hidden score "
                        "hides it only if the others are much higher; which number is below all others?")  # fmt: skip


def _causal_weights_of_a_square(lesson: ModuleType) -> None:
    shares = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.2, 0.3, 0.1], [0.3, 0.2, 0.4, 0.1], [0.25, 0.3, 0.15, 0.3]])
    scores = np.log(shares) + np.array([[0.7], [-0.2], [1.1], [0.4]])
    right, T = _causal(scores), len(scores)
    answer = lesson.causal_weights(scores.copy())
    is_nan = np.isnan(np.asarray(answer, dtype=float)) if np.shape(answer) == (T, T) else np.zeros((T, T), dtype=bool)
    if is_nan[1:].any():
        raise Wrong(
            "there are NaN in rows that see something; 0 · -∞ is NaN, so a mask of -∞ can't be made by a product"
        )
    if is_nan[0].all():
        raise Wrong(
            "row 0 is NaN: its query sees no key at all, not even its own, and 0/0 is no share. A position "
            "may look at itself"
        )
    if np.shape(answer) == (T, T) and np.triu(answer, 1).max() < 1e-3:
        _expect_none_ahead(answer, np.tri(T) == 0, "the weights of four positions")
    past = np.where(np.tri(T, k=-1) > 0, -np.inf, scores)
    zeros = np.where(np.tri(T) > 0, scores, 0.0)
    itself = np.where(np.tri(T, k=1) > 0, scores, -np.inf)
    expect(
        answer,
        right,
        "the weights of four positions",
        [
            (
                shares * np.tri(T),
                "row 1 sums to 0.6: you hid the future after the softmax, when it had taken its share already",
            ),
            (
                _softmax(past),
                "you hid the past: query 0 sees all four, and query 3 itself alone. In lecture notes N0, "
                "(2.12), the queries stand in the columns; yours are the rows, so that mask must be turned",
            ),
            (_softmax(zeros), "a hidden score of 0 is not hidden: e⁰ = 1 is a weight like any other"),
            (_softmax(itself), "query 0 takes something from position 1: that is the token it is to predict"),
            (_softmax(np.where(np.tri(T) > 0, scores, -np.inf), axis=0), "the columns sum to 1, not the rows"),
            (_causal(scores / T**0.5), "you divide the scores by a root: this function gets them scaled already"),
        ],
    )


def _causal_weights_with_a_cache(lesson: ModuleType) -> None:
    scores = _numbers(2, 3, 2, 5)
    right = np.array([[_causal(table) for table in text] for text in scores])
    from_start = _softmax(np.where(np.tri(2, 5) > 0, scores, -np.inf))
    answer = lesson.causal_weights(scores.copy())
    if np.shape(answer) == scores.shape and np.isnan(np.asarray(answer, dtype=float)).any():
        raise Wrong("right for one table, but here axis 1 is that of the heads: the keys are always the *last* axis")
    expect(
        answer,
        right,
        "the weights of 2 queries and 5 keys, of 3 heads and 2 texts",
        [
            (
                from_start,
                "with 2 queries and 5 keys, the queries are positions 3 and 4: your first query sees key 0 "
                "alone, but it stands at position 3 and may see 0 to 3",
            )
        ],
    )


# ---- Several heads ----


def split_heads(lesson: ModuleType) -> None:
    B, T, H, K = 2, 5, 3, 4
    x = np.arange(B * T * H * K, dtype=float).reshape(B, T, H * K)
    right = np.array([[[x[b, t, h * K : h * K + K] for t in range(T)] for h in range(H)] for b in range(B)])
    interleaved = np.array([[[x[b, t, h::H] for t in range(T)] for h in range(H)] for b in range(B)])
    answer = lesson.split_heads(x.copy(), H)
    if answer is not None and np.shape(answer) == (B, T, H, K):
        raise Wrong(
            "the axes are (B, T, H, K): cut as it should be, but the heads still stand behind the positions; "
            "(B, H, T, K) is expected"
        )
    if answer is not None and np.shape(answer) == (B, H, K, T):
        raise Wrong("the axes are (B, H, K, T); (B, H, T, K) is expected: a row is a position")
    expect(
        answer,
        right,
        "the heads",
        [
            (
                x.reshape(B, H, T, K),
                "head 0 got positions, not channels: its row 1 has numbers 4 to 7 of position 0, "
                "where the first four numbers of position 1 should be. A reshape alone cannot move "
                "an axis",
            ),
            (
                interleaved,
                f"head 0 got the numbers {', '.join(map(str, range(0, H * K, H)))} of each position, not the "
                "first 4: you dealt them out like cards",
            ),
        ],
    )
    given = x.copy()
    lesson.split_heads(given, H)
    if given.shape != x.shape or not np.array_equal(given, x):
        raise Wrong(f"your function has changed the x that it was given, which is now {given.shape}: `reshape` makes "
                    "a new one, and `x.shape = …` does not")  # fmt: skip
    what = f"{B} texts of {T} positions, cut into {H * K} heads of width 1"
    expect(call(what, lesson.split_heads, x.copy(), H * K), x.transpose(0, 2, 1)[..., None], what)
    rng = draws("split_heads")
    B, T, K = (int(n) for n in rng.choice([2, 3, 5, 6, 7], 3, replace=False))
    for n_texts, H in ((B, B), (B, 1), (1, int(rng.integers(2, 9)))):
        x = rng.standard_normal((n_texts, T, H * K))
        right = np.array([[text[:, h * K : h * K + K] for h in range(H)] for text in x])
        what = f"{n_texts} texts of {T} positions, cut into {H} heads of width {K}"
        slips = [(right.swapaxes(0, 1), f"{what}: your axes are (H, B, T, K); (B, H, T, K) is expected")]
        expect(call(what, lesson.split_heads, x.copy(), H), right, what, slips if n_texts == H else [])


def heads_by_einsum(lesson: ModuleType) -> None:
    B, T, H, K = 2, 5, 3, 4
    q, k, v = (_numbers(B, T, H, K, seed=seed) for seed in (1, 2, 3))
    right = _heads(q, k, v)
    scores = [[q[b, :, h] @ k[b, :, h].T for h in range(H)] for b in range(B)]
    weights = np.array([[_causal(table / K**0.5) for table in text] for text in scores])
    turned_scores = np.array([[_causal(table.T / K**0.5).T @ v[b, :, h] for h, table in enumerate(scores[b])]
                              for b in range(B)]).transpose(0, 2, 1, 3)  # fmt: skip
    weights_BTHS = np.array(
        [[_causal(table) for table in text] for text in np.einsum("bthk,bshk->bths", q, k) / K**0.5]
    )
    of_all = np.array([_causal(np.sum(scores[b], axis=0) / K**0.5) for b in range(B)])
    turned = np.stack([[weights[b, h].T @ v[b, :, h] for h in range(H)] for b in range(B)]).transpose(0, 2, 1, 3)
    with np.errstate(all="ignore"):
        answer = lesson.heads_by_einsum(q.copy(), k.copy(), v.copy())
    if np.shape(answer) == right.shape and np.isnan(np.asarray(answer, dtype=float)).any():
        raise Wrong(
            "there are NaN: causal_weights takes the last two axes for queries and keys; are yours the last two?"
        )
    expect(
        answer,
        right,
        "the outputs of the heads",
        [
            (
                turned,
                "you mixed with the weights turned: position s gathered what others take from it. The letter that "
                "disappears must be that of the keys",
            ),
            (
                _heads(q, k, v, all_values=True),
                "every head mixed the values of all heads: a letter that stands for the "
                "heads in one array alone is summed away",
            ),
            (
                _heads(q, k, v, all_keys=True),
                "every head compared its query with the keys of all heads, added up: the "
                "heads need the same letter in both arrays",
            ),
            (
                np.einsum("bths,bshk->bthk", weights_BTHS, v),
                "causal_weights takes the last two axes of the scores for queries and keys; yours are heads and keys, "
                "so head 0 sees less than head 2",
            ),
            (
                turned_scores,
                "your scores have the keys before the queries: the keys ask, and the mask hides the wrong half",
            ),
            (
                np.einsum("bts,bshk->bthk", of_all, v),
                "the scores have no letter for the heads: all heads add up their scores and look at the same place",
            ),
            (_heads(q, k, v, scale=1.0), "you don't divide by √K"),
            (_heads(q, k, v, scale=(H * K) ** -0.5), "you divide by √12; a head's score has K = 4 products"),
            (_heads(q, k, v, is_causal=False), "your heads look ahead"),
        ],
    )
    expect(lesson.heads_by_einsum(q[:, 3:], k, v), right[:, 3:], "2 queries after 3 others: 5 keys and values")
    rng = draws("heads_by_einsum")
    for times in (1, 1000):
        B, S, H, K = (int(n) for n in rng.choice([2, 3, 5, 6, 7], 4, replace=False))
        S += 1
        T = int(rng.integers(2, S + 1))
        q, k, v = rng.standard_normal((3, B, S, H, K))
        q *= times
        what = f"B = {B}, T = {T}, S = {S}, H = {H}, K = {K}" + (", with scores of 1,000 and more" if times > 1 else "")
        answer = call(what, lesson.heads_by_einsum, q[:, S - T :].copy(), k.copy(), v.copy())
        if _has_nan(answer):
            raise Wrong(_TOO_LARGE.format(what))
        slips = [(_heads(q, k, v, scale=0.5)[:, S - T :], f"{what}: {_ROOT.format(K)}")]
        expect(answer, _heads(q, k, v)[:, S - T :], what, slips, tolerance=1e-6)


def _heads(
    q: Array, k: Array, v: Array, scale: float | None = None, is_causal: bool = True, all_values=False, all_keys=False
) -> Array:
    """The outputs (B, T, H, K) of heads, one text, head and position after the other; with switches for mistakes."""
    B, T, H, K = q.shape
    outputs = np.zeros(q.shape)
    for b, h in np.ndindex(B, H):
        keys = k[b].sum(axis=1) if all_keys else k[b, :, h]
        values = v[b].sum(axis=1) if all_values else v[b, :, h]
        for t in range(T):
            n = t + 1 if is_causal else T
            scores = np.array([q[b, t, h] @ key for key in keys[:n]]) * (K**-0.5 if scale is None else scale)
            outputs[b, t, h] = sum(w * value for w, value in zip(_shares(scores), values[:n], strict=True))
    return outputs


# ---- Positions ----


def _turned(x: Array, positions: Array, speeds: Array, pairs: list[tuple[int, int]] | None = None) -> Array:
    """Each pair as a complex number, times e^(i · angle)."""
    K = x.shape[-1]
    result = np.zeros(x.shape)
    for i, (first, second) in enumerate(pairs or [(i, i + K // 2) for i in range(K // 2)]):
        hand = (x[..., first] + 1j * x[..., second]) * np.exp(1j * np.asarray(positions) * speeds[i])
        result[..., first], result[..., second] = hand.real, hand.imag
    return result


def _turned_in_place(x: Array, positions: Array, speeds: Array, mirrored: bool = False) -> Array:
    cos, sin = np.cos(np.outer(positions, speeds)), np.sin(np.outer(positions, speeds))
    a, b = np.split(x, 2, axis=-1)
    if mirrored:
        return np.concatenate([a * cos + b * sin, b * cos + a * sin], axis=-1)
    a = a * cos - b * sin
    return np.concatenate([a, b * cos + a * sin], axis=-1)


def _rotated(x: Array) -> Array:
    K = x.shape[-1]
    return _turned(x, np.arange(x.shape[-2]), np.array([10_000 ** (-2 * i / K) for i in range(K // 2)]))


def rotate(lesson: ModuleType) -> None:
    T, K = 5, 6
    x, t = _numbers(3, T, K), np.arange(T)
    speeds = np.array([10_000 ** (-2 * i / K) for i in range(K // 2)])
    too_fast = np.array([10_000 ** (-i / K) for i in range(K // 2)])
    neighbours = [(2 * i, 2 * i + 1) for i in range(K // 2)]
    right = _turned(x, t, speeds)
    from_one = _turned(x, t + 1, speeds)
    score = np.sum(right[0, 3] * right[1, 1])
    try:
        answer = lesson.rotate(x.copy())
    except ValueError:
        raise Wrong("x has three axes here, (3, 5, 6): three tables of five positions. Your shapes do not fit; count "
                    "the axes from the end, T is `x_TK.shape[-2]`") from None  # fmt: skip
    expect(
        answer,
        right,
        "five positions of width 6, turned",
        [
            (
                _turned(x, t, speeds, neighbours),
                "your pairs are neighbours, numbers 2i and 2i + 1, as in the paper; here "
                "they are i and i + K/2. The scores would be as good, but a model "
                "trained with one form is lost in the other",
            ),
            (
                from_one,
                f"you count positions from 1: row 0 has turned, and it should not. No score shows it: between "
                f"rows 3 and 1 it is {score:.4f} either way, because only the distance counts. It shows as soon as "
                "keys counted from 0 lie in a cache",
            ),
            (
                _turned(x, t, np.ones(K // 2)),
                "all your clocks turn at the same speed; clock i turns by 10000^(-2i/K) "
                "radians per position, and only clock 0 by a whole radian",
            ),
            (
                _turned(x, t, 1 / speeds),
                "your clocks get faster and faster; the exponent is negative: clock 0 is the fastest",
            ),
            (
                np.stack(np.split(right, 2, axis=-1), axis=-1).reshape(x.shape),
                "turned well, but laid down as neighbours: all new a's come first, then all new b's",
            ),
            (
                _turned_in_place(x, t, speeds, mirrored=True),
                "both signs are plus: then hands change their lengths; a turn keeps them. One sine needs a minus",
            ),
            (_turned(x, t, too_fast), "your clock 1 turns at 10000^(-1/6); it should be 10000^(-2/6)"),
            (
                _turned(x, -t, speeds),
                "your hands turn clockwise: a query would see what lies before it as if it came after it",
            ),
            (_turned(x, np.radians(t), speeds), "you took the angles for degrees; they are radians"),
            (x, "nothing has turned"),
            (
                _turned_in_place(x, t, speeds),
                "the second half was computed from a first half that had turned already; both need the old numbers",
            ),
        ],
    )
    expect(
        lesson.rotate(x[:, 3:].copy(), 3),
        right[:, 3:],
        "rows 3 and 4 alone, with start = 3",
        [
            (
                _turned(x[:, 3:], t[:2], speeds),
                "a query at position 3 has turned as if it stood at 0: `start` is the "
                "position of the first row, when the keys before it are in a cache",
            )
        ],
    )
    what = "a single row, with start = 4"
    rests = "has not turned: it may be the newest query, whose keys lie in a cache, and `start` says where it stands"
    expect(lesson.rotate(x[:, 4:].copy(), 4), right[:, 4:], what, [(x[:, 4:], f"{what}: it {rests}")])
    rng = draws("rotate")
    halves = rng.permutation([1, *rng.choice([2, 4, 5, 7], 2, replace=False)])
    for before, half in zip(((), (2, 3), (1,)), halves, strict=True):
        T, K, start = int(rng.integers(1, 7)), 2 * int(half), int(rng.integers(70, 2000) * rng.choice([1, 100]))
        x, t = rng.standard_normal((*before, T, K)), np.arange(start, start + T)
        speeds = np.array([10_000 ** (-2 * i / K) for i in range(K // 2)])
        right = _turned(x, t, speeds)
        what = f"an array {x.shape} that starts at position {start}"
        answer = call(what, lesson.rotate, x, start)
        slips = []
        if len(before) == 2:
            by_head = np.stack([_turned(x[:, h], np.full(T, start + h), speeds) for h in range(before[1])], axis=1)
            slips = [(by_head, f"{what}: all rows of a head have turned alike, and each head by another angle: you "
                      "took the axis of the heads for that of the positions, which is the last but one")]  # fmt: skip
        expect(answer, right, what, slips, tolerance=1e-7)
    speeds = np.array([10_000 ** (-i / 3) for i in range(3)])
    x = rng.integers(2, 9, size=(5, 6))
    right, what = _turned(x, np.arange(5), speeds), "whole numbers in x"
    cut_off = f"{what}: your result is whole, too, and cut off; an array made like x holds no others"
    expect(call(what, lesson.rotate, x.copy()), right, what, [(np.trunc(right), cut_off)])


# ---- Another text, and the whole ----


def cross_attention(lesson: ModuleType) -> None:
    T, S, D, K = 3, 5, 6, 4
    x, source = _numbers(T, D), _numbers(S, D, seed=8)
    W_Q, W_K, W_V = (_numbers(K, D, seed=seed, scale=0.5) for seed in (1, 2, 3))
    products = np.array([[(W_Q @ row) @ (W_K @ other) for other in source] for row in x]) / K**0.5
    values = np.array([W_V @ other for other in source])
    try:
        answer = lesson.cross_attention(x, source, W_Q, W_K, W_V)
    except ValueError as error:
        if f"size {T} is different from {S}" not in str(error) and f"size {S} is different from {T}" not in str(error):
            raise
        raise Wrong("keys or values come from x: each share is for a word of the source, so that its value is added; "
                    "both come from there") from None  # fmt: skip
    if isinstance(answer, tuple):
        raise Wrong("the outputs alone are asked, without the weights")
    if answer is not None and np.shape(answer) == (S, K):
        raise Wrong(
            "you have an output for each of the 5 words of the source, so the source has asked; the 3 words of "
            "x are to ask, and the source to answer"
        )
    from_start = _softmax(np.where(np.tri(T, S) > 0, products, -np.inf)) @ values
    expect(
        answer,
        _softmax(products) @ values,
        "3 words that look at 5 of another text",
        [
            (
                _causal(products) @ values,
                "you hid a part of the source; all of it is there before the first word "
                "is written, so nothing needs hiding",
            ),
            (
                from_start,
                "you hid a part of the source; all of it is there before the first word is written, so nothing "
                "needs hiding",
            ),
            (
                _softmax(products, axis=0) @ values,
                "the columns sum to 1, not the rows: your softmax runs over the queries",
            ),
            (_softmax(products * K**0.5) @ values, "you don't divide by √K"),
        ],
    )
    as_long = _numbers(S, D, seed=9)
    products = np.array([[(W_Q @ row) @ (W_K @ other) for other in source] for row in as_long]) / K**0.5
    what = "5 words that look at 5 of another text"
    answer = call(what, lesson.cross_attention, as_long, source, W_Q, W_K, W_V)
    expect(answer, _softmax(products) @ values, what)
    rng = draws("cross_attention")
    for largest in (3.0, 20_000.0):
        S, D, K = (int(n) for n in rng.choice([6, 8, 10, 12, 14], 3, replace=False))
        T = S + int(rng.integers(1, 4))
        x, source, (W_Q, W_K, W_V) = (rng.standard_normal(shape) for shape in ((T, D), (S, D), (3, K, D)))
        W_Q *= _factor_to(largest, _products(x, source, W_Q, W_K))
        what = f"{T} words that look at {S} of another text, K = {K}, with scores up to {largest:,.0f}"
        answer = call(what, lesson.cross_attention, x, source, W_Q, W_K, W_V)
        if _has_nan(answer):
            raise Wrong(_TOO_LARGE.format(what))
        products, values = _products(x, source, W_Q, W_K), source @ W_V.T
        slips = [(_softmax(products / 2) @ values, f"{what}: {_ROOT.format(K)}"),
                 (_softmax(products / (S - 1) ** 0.5) @ values, f"{what}: the root is one of the number of words "
                  "in the source; it should be √K, K being the width of a query")]  # fmt: skip
        expect(answer, _softmax(products / K**0.5) @ values, what, slips, tolerance=1e-6)


def multi_head_attention(lesson: ModuleType) -> None:
    B, T, H, K = 2, 5, 3, 4
    D = H * K
    x = _numbers(B, T, D)
    W_Q, W_K, W_V, W_O = (_numbers(D, D, seed=seed, scale=0.4) for seed in (1, 2, 3, 4))

    def cut(W: Array) -> Array:
        return np.array([[W @ row for row in text] for text in x]).reshape(B, T, H, K)

    def by_head(function, table: Array) -> Array:
        return np.stack([function(table[:, :, h]) for h in range(H)], axis=2)

    q, k, v = map(cut, (W_Q, W_K, W_V))
    turned_q, turned_k = by_head(_rotated, q), by_head(_rotated, k)
    y = _heads(turned_q, turned_k, v)
    side_by_side = y.reshape(B, T, D)
    stacked = y.transpose(0, 2, 1, 3).reshape(B, T, D)
    dealt_out = y.transpose(0, 1, 3, 2).reshape(B, T, D)
    whole_q, whole_k = (_rotated(table.reshape(B, T, D)).reshape(B, T, H, K) for table in (q, k))

    early_q, early_k = ((_rotated(x) @ W.T).reshape(B, T, H, K) for W in (W_Q, W_K))
    other_q, other_k, other_v = ((x @ W).reshape(B, T, H, K) for W in (W_Q, W_K, W_V))

    def mixed(y_BTHK: Array) -> Array:
        return y_BTHK.reshape(B, T, D) @ W_O.T

    try:
        answer = lesson.multi_head_attention(x, W_Q, W_K, W_V, W_O, H)
    except ValueError as error:
        if "matmul" not in str(error):
            raise
        raise Wrong("the shapes of a product don't fit. With four axes, `.T` reverses all of them; `swapaxes(-1, -2)` "
                    "swaps the last two alone") from None  # fmt: skip
    expect(
        answer,
        mixed(y),
        "3 heads of width 4",
        [
            (
                side_by_side,
                "no W_O: these are the outputs of the heads side by side. Nothing has mixed them yet, so "
                "head 0 can only ever write into numbers 0 to 3",
            ),
            (side_by_side @ W_O, "W_O is turned: number i of the result is row i of W_O times the heads' outputs"),
            (
                mixed(stacked),
                "position 0 got head 0's outputs of three positions: the outputs were joined with the heads "
                "in front of the positions. First bring the heads of one position together",
            ),
            (
                mixed(dealt_out),
                "the heads' numbers are dealt out like cards; head 0's four numbers come first, then head 1's",
            ),
            (
                mixed(_heads(turned_q, turned_k, by_head(_rotated, v))),
                "you turned the values, too. Where a word stands "
                "is to decide whether it is found, not what is "
                "handed over",
            ),
            (
                mixed(_heads(whole_q, whole_k, v)),
                "you turned before you cut: the pairs then reach across the heads, and "
                "the speeds are those of a head of width 12",
            ),
            (
                mixed(_heads(early_q, early_k, v)),
                "you turned x, before W_Q and W_K: the matrices mix all hands, and more than the distance counts; "
                "turn the queries and the keys",
            ),
            (
                mixed(_heads(turned_q, k, v)),
                "you turned the queries alone: with the keys at rest, a score depends on where the query stands, not "
                "on the distance",
            ),
            (
                mixed(_heads(by_head(_rotated, other_q), by_head(_rotated, other_k), other_v)),
                "W_Q, W_K and W_V are turned: number i of a query is row i of W_Q times x, as in `head`",
            ),
            (
                x + mixed(y),
                "you add x: that comes later, in the block; here the result is what the heads have gathered",
            ),
            (
                mixed(_heads(q, k, v)),
                "distance has no effect: either nothing is turned, or the axis before the last, which `rotate` takes "
                "for the positions, is that of the heads",
            ),
            (
                mixed(_heads(turned_q, turned_k, v, scale=D**-0.5)),
                "you divide by √12, the width of x; a head's score has K = 4 products",
            ),
            (mixed(_heads(turned_q, turned_k, v, scale=1.0)), "you don't divide by √K"),
            (mixed(_heads(turned_q, turned_k, v, is_causal=False)), "your heads look ahead"),
        ],
    )
    rng = draws("multi_head_attention")
    for is_extreme in (False, True):
        B, T, H = (int(n) for n in rng.choice([1, 2, 5, 6], 3, replace=False))
        B = 1 if is_extreme else B
        T, K = T + 2, int(rng.choice([2, 6, 8]))
        D = H * K
        x, (W_Q, W_K, W_V, W_O) = rng.standard_normal((B, T, D)), rng.standard_normal((4, D, D)) * D**-0.5
        if is_extreme:  # each position matches itself least of all
            W_Q, W_K = 100 * W_Q, 100 * (0.1 * W_K - W_Q)
        what = f"B = {B}, T = {T}, H = {H}, K = {K}" + (", with scores of 1,000 and more" if is_extreme else "")
        answer = call(what, lesson.multi_head_attention, x, W_Q, W_K, W_V, W_O, H)
        if _has_nan(answer):
            raise Wrong(_TOO_LARGE.format(what))
        changed = x.copy()
        changed[:, -1] += 3.0
        later = call(what, lesson.multi_head_attention, changed, W_Q, W_K, W_V, W_O, H)
        if np.shape(answer) == np.shape(later) == (B, T, D) and not np.allclose(answer[:, :-1], later[:, :-1]):
            moved = np.abs(np.asarray(answer) - later)[:, :-1].max()
            raise Wrong(f"{what}: another word at the last position moves the outputs before it, by up to {moved:.2g}; "
                        "so some of its share is left, however it was hidden")  # fmt: skip
        q, k, v = ((x @ W.T).reshape(B, T, H, K) for W in (W_Q, W_K, W_V))
        q, k = (np.stack([_rotated(table[:, :, h]) for h in range(H)], axis=2) for table in (q, k))
        slips = [(_heads(q, k, v, scale=0.5).reshape(B, T, D) @ W_O.T, f"{what}: {_ROOT.format(K)}")]
        expect(answer, _heads(q, k, v).reshape(B, T, D) @ W_O.T, what, slips, tolerance=1e-6)

"""Checks of lesson 13. Every right answer is computed here by plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from pellucid.course.checks import Wrong, call, draws, expect

Array = np.ndarray


def _shares(weights: Any) -> Array:
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights])


def _keeps_its_argument(function: Callable[[Array, Any], Any], numbers: Array, other: Any) -> None:
    given = numbers.copy()
    function(given, other)
    if not np.array_equal(given, numbers):
        raise Wrong("your function changes the array that it is given; others may still need it. Make a new one")


def _softmax(logits: Any) -> Array:
    return _shares([math.exp(logit - max(logits)) for logit in logits])


# ---- One token ----


def at_temperature(lesson: ModuleType) -> None:
    logits = np.array([0.3, 2.0, -1.1, 1.4, 0.9])
    p = _softmax(logits)
    with np.errstate(all="ignore"):
        _temperatures(lesson, logits, p)
        answer = lesson.at_temperature(logits.copy(), 0)
        if np.shape(answer) == (5,) and not np.isfinite(np.asarray(answer, dtype=float)).all():
            raise Wrong(
                "at temperature 0 there are numbers that are none: you divided by 0. The formula has no value there, "
                "only a limit: all of the probability on the largest logit"
            )
        expect(
            answer,
            [0, 1, 0, 0, 0],
            "the probabilities at temperature 0",
            [
                (p, "at temperature 0 you return the model's own probabilities; those belong to temperature 1"),
                ([0.2] * 5, "at temperature 0 all tokens are alike; that is the limit of an infinite temperature"),
            ],
        )
        close = draws("at_temperature").permutation([-7.0, -7.00001, -9.0])
        expect(
            lesson.at_temperature(close.copy(), 0),
            np.eye(3)[close.argmax()],
            "temperature 0 with logits of -7, -7.00001 and -9",
            [
                (
                    np.eye(3)[close.argmin()],
                    "at temperature 0 you take the logit that is furthest from 0; the largest is -7",
                )
            ],
        )
    close = draws("at_temperature").permutation([0.0, 1e-17, -1.0])
    what = "temperature 0 with logits of 0, 1e-17 and -1"
    slips = [(np.eye(3)[i], f"{what}: 1e-17 is the largest. To a softmax, e^0 and e^1e-17 are one number: look at the "
              "logits") for i in range(3)]  # fmt: skip
    expect(lesson.at_temperature(close.copy(), 0), np.eye(3)[close.argmax()], what, slips)
    close = draws("at_temperature").permutation([3e-6, 2e-6, 0.0])
    with np.errstate(all="ignore"):
        answer = lesson.at_temperature(close.copy(), 1e-6)
    if np.shape(answer) == (3,) and not np.isfinite(np.asarray(answer, dtype=float)).all():
        raise Wrong(
            "temperature 0.000001, where the logits are a millionth apart: a probability to the power of a million is "
            "0 in a computer, and 0/0 is no number. It is the logits that are divided"
        )
    expect(
        answer,
        _softmax(close / 1e-6),
        "temperature 0.000001, where the logits are a millionth apart",
        [(np.eye(3)[close.argmax()], "at temperature 0.000001 you give all to the largest logit, but the next is only "
                                     "0.000001 below it: that is the limit for 0, and only for 0")],
        tolerance=1e-6,
    )  # fmt: skip


def _temperatures(lesson: ModuleType, logits: Array, p: Array) -> None:
    for temperature in (0.5, 2.0):
        expect(
            lesson.at_temperature(logits.copy(), temperature),
            _softmax(logits / temperature),
            f"the probabilities at temperature {temperature:g}",
            [
                (
                    p,
                    f"at temperature {temperature:g} nothing has changed: if all probabilities are divided by the same "
                    "number and made a whole again, they are what they were. The softmax comes after the division",
                ),
                (p / temperature, f"the sum is {1 / temperature:g}: it is the logits that are divided, not the shares"),
                (
                    _softmax(logits * temperature),
                    f"your temperature {temperature:g} does what {1 / temperature:g} should: a high temperature makes "
                    "the logits smaller, and the tokens more alike",
                ),
                (
                    _softmax(p / temperature),
                    "you took a softmax of probabilities: they differ by less than 1, so all tokens become alike. The "
                    "softmax belongs to the logits",
                ),
                (logits / temperature, "these are logits still; no softmax has made probabilities of them"),
                (np.exp(logits / temperature), "these numbers don't sum to 1: divide them by their sum"),
            ],
        )
    expect(lesson.at_temperature(logits.copy(), 1.0), p, "temperature 1, the model itself")
    _keeps_its_argument(lesson.at_temperature, logits, 2.0)
    expect(lesson.at_temperature(logits.copy(), 1e9), [0.2] * 5, "a temperature of a billion", tolerance=1e-6)
    cold = np.asarray(lesson.at_temperature(logits.copy(), 0.0025), dtype=float)
    if cold.shape == (5,) and not np.isfinite(cold).all():
        raise Wrong(
            "at temperature 0.0025 the largest logit becomes 800, and e^800 is infinite in a computer; the `softmax` "
            "of the file subtracts the largest logit first"
        )
    expect(cold, [0, 1, 0, 0, 0], "temperature 0.0025")
    rng = draws("at_temperature")
    close = rng.permutation([-1.2, -1.21, -1.25, -3.0, -1.3])
    expect(
        lesson.at_temperature(close.copy(), 0.05),
        _softmax(close / 0.05),
        "temperature 0.05, where the logits are close to each other",
        [(np.eye(5)[close.argmax()], "at temperature 0.05 you give all to the largest logit, but the next is only 0.01 "
                                     "below it: that is the limit for 0, and 0.05 is not 0")],
    )  # fmt: skip
    for n, temperature in ((int(rng.integers(20, 60)), float(rng.uniform(0.3, 3))), (1, 0.7)):
        logits = rng.normal(0, 4, n)
        what = f"{n} logit{'s' * (n > 1)} at temperature {temperature:.2f}"
        expect(lesson.at_temperature(logits.copy(), temperature), _softmax(logits / temperature), what)


def draw(lesson: ModuleType) -> None:
    p = np.array([0.125, 0.5, 0.25, 0.125])
    ends = list(accumulate(p))
    order = sorted(range(4), key=lambda i: -p[i])
    ends_sorted = list(accumulate(p[order]))
    points = (0.05, 0.3, 0.55, 0.7, 0.9)
    right = [sum(u >= end for end in ends) for u in points]
    ranks = [sum(u >= end for end in ends_sorted) for u in points]
    answers = [_token(lesson.draw(p.copy(), u)) for u in points]
    for u, answer in zip(points, answers, strict=True):
        if answer is None or np.ndim(answer) or answer not in range(-1, 5):
            expect(
                answer,
                right[points.index(u)],
                f"the token at {u:g}",
                [(p[right[points.index(u)]], "you return the probability of the token; its id is asked")],
            )
    if any(_token(lesson.draw(p.copy(), points[1])) != answers[1] for _ in range(20)):
        raise Wrong("at the same number you return now one token, now another: that number is all the chance there is")
    expect(
        answers,
        right,
        "the tokens at 0.05, 0.3, 0.55, 0.7 and 0.9, when the pieces end at 0.125, 0.625, 0.875 and 1",
        [
            ([1] * 5, "you take the likeliest token, whatever the random number says: that is greedy, not a draw"),
            (
                ranks,
                f"at 0.55 you return {ranks[2]}: that is a place in the sorted list, not a token. There is no need to "
                "sort; if you do, go back from the place to the token's id",
            ),
            (
                [order[rank] for rank in ranks],
                f"at 0.05 you hit token {order[ranks[0]]}: the tokens lie in the order of their ids, not sorted",
            ),
            (
                np.add(right, 1),
                f"at 0.3 you return {right[1] + 1}, one too far: piece {right[1]} begins where the one before it ends",
            ),
            (
                np.subtract(right, 1),
                f"at 0.3 you return {right[1] - 1}: you took the last piece that ends before the number; the number "
                "lies in the next",
            ),
            (
                [min(range(4), key=lambda i: abs(ends[i] - u)) for u in points],
                "you take the piece whose end is nearest; the number may lie in the one after it",
            ),
            (
                [next((i for i in range(4) if p[i] > u), 0) for u in points],
                "you compare the number with the lengths of the pieces; compare it with their *ends*, the sums of the "
                "lengths so far",
            ),
            (
                [int(u * 4) for u in points],
                "your pieces are equally long, so each token comes equally often; each is as long as its probability",
            ),
            (
                [min(range(4), key=lambda i: abs(p[i] - u)) for u in points],
                "you take the token whose probability is nearest to the number; the number is a point on the line",
            ),
        ],
    )
    below = math.nextafter(0.625, 0)
    if _token(lesson.draw(p.copy(), below)) == 2:
        raise Wrong(f"at {below} you hit token 2, which begins at 0.625: the number is a little less. Did you round "
                    "it, or the ends, as float32 does?")  # fmt: skip
    narrow = np.array([0.5, 2.0**-40, 0.5 - 2.0**-40])
    if _token(lesson.draw(narrow.copy(), 0.5)) == 2:
        raise Wrong("at 0.5 you hit token 2, but token 1, of probability 2^-40, begins there: did you round the ends?")
    _keeps_its_argument(lesson.draw, np.array([0.3, 0.6, 0.1], dtype=np.float32).astype(float), 0.5)  # not quite 1
    possible = np.array([0.0, 0.25, 0.0, 0.75])
    with np.errstate(all="ignore"):
        first, border = _token(lesson.draw(possible.copy(), 0.0)), _token(lesson.draw(possible.copy(), 0.25))
    if first == 0:
        raise Wrong(
            "at 0 you hit token 0, which has probability 0. Its piece begins and ends at 0, so it holds nothing: a "
            "piece holds its beginning, not its end"
        )
    expect(first, 1, "the token at 0, with probabilities 0, 0.25, 0, 0.75")
    expect(
        border,
        3,
        "the token at 0.25, with probabilities 0, 0.25, 0, 0.75",
        [
            (1, "at 0.25, where token 1 ends and token 3 begins, you hit token 1: an end is not part of the piece"),
            (2, "at 0.25 you hit token 2, which has probability 0"),
        ],
    )
    rng = draws("draw")
    p = rng.dirichlet(np.ones(int(rng.integers(20, 60))))
    points = rng.random(40)
    right = [sum(u >= end for end in accumulate(p)) for u in points]
    expect([_token(lesson.draw(p.copy(), u)) for u in points], right, f"40 tokens of {len(p)}")
    last = math.nextafter(1, 0)
    beyond = (
        "the largest number below 1 lies beyond the last end: 0.1 added ten times is 0.9999999999999999 in a computer. "
        "Every number below 1 hits a token: here it is 9"
    )
    answer = _token(lesson.draw(np.full(10, 0.1), last))
    if answer is None:
        raise Wrong(beyond)
    expect(answer, 9, "ten tokens of 0.1", [(wrong, f"ten tokens of 0.1: you return {wrong}, but {beyond}")
                                            for wrong in (0, 10)])  # fmt: skip
    what = "ten tokens of 0.1 and two of 0"
    never = f"{what}: the largest number below 1 gets the last token of all, but that can never come; take one that can"
    expect(_token(lesson.draw(np.array([0.1] * 10 + [0.0] * 2), last)), 9, what,
           [(11, never), (10, never), (12, f"{what}: you return 12, but {beyond}")])  # fmt: skip


def _token(answer: Any) -> Any:
    """An answer as a number, also from an array that holds one."""
    return answer if answer is None or np.size(answer) != 1 else np.asarray(answer).reshape(())


# ---- Cutting the tail off ----


def _kept(p: Array, tokens: Any) -> Array:
    kept = np.array([p[i] if i in tokens else 0.0 for i in range(len(p))])
    return kept / kept.sum()


def _at(tokens: Any, shares: Any) -> Array:
    """Six numbers: these shares in the places of these tokens, and else 0."""
    result = np.zeros(6)
    result[list(tokens)] = shares
    return result


def top_k(lesson: ModuleType) -> None:
    p = np.array([0.05, 0.3, 0.1, 0.25, 0.18, 0.12])
    order = sorted(range(6), key=lambda i: -p[i])
    answer = lesson.top_k(p.copy(), 3)
    if answer is not None and np.shape(answer) == (3,):
        raise Wrong(
            "you return three numbers; six are expected, one for each token, with 0 for those cut off: otherwise "
            "nobody knows which token a number belongs to"
        )
    expect(
        answer,
        _kept(p, order[:3]),
        "top-k 3 of [0.05, 0.3, 0.1, 0.25, 0.18, 0.12]",
        [
            (_kept(p, order[:2]), "two tokens stay: you dropped the third likeliest, and it is one of the three"),
            (_kept(p, order[:4]), "four tokens stay, one too many"),
            (_kept(p, order[:3]) * p[order[:3]].sum(), "the sum is 0.73: what stays must be made a whole again"),
            (_kept(p, order[3:]), "you kept the least likely tokens"),
            (
                _kept(p, [i for i in range(6) if order[i] < 3]),
                "argsort says which token is at each place, not which place each token has; you took one for the other",
            ),
            (_kept(p, range(3)), "you kept the first three tokens of the vocabulary, not the likeliest"),
            (_kept(p, range(3, 6)), "you kept the last three tokens of the vocabulary, not the likeliest"),
            (_softmax(_kept(p, order[:3])), "a softmax of probabilities gives the tokens cut off something again"),
            (
                _at(order[:3], _softmax(p[order[:3]])),
                "you took a softmax of probabilities: three that differ by 0.12 become nearly alike. Divide by the sum",
            ),
            (
                sorted(_kept(p, order[:3]), reverse=True),
                "your numbers are sorted: the likeliest comes first, whatever its id is. Each number must go back to "
                "the place of its token",
            ),
            (
                _at(order[:3], [1 / 3] * 3),
                "the three have equal shares; what stays keeps its proportions: divide it by its sum",
            ),
            (
                _at(order[:3], p[order[:3]] + 0.27 / 3),
                "each of the three got a third of the 0.27 that was cut off; what stays keeps its proportions: divide "
                "it by its sum",
            ),
            (
                _at(order[:3], p[order[:3]] + [0.27, 0, 0]),
                "the likeliest got all that was cut off; what stays keeps its proportions: divide it by its sum",
            ),
        ],
    )
    even = np.array([0.2, 0.3, 0.2, 0.1, 0.2])
    answer = lesson.top_k(even.copy(), 2)
    if np.shape(answer) != (5,):
        expect(answer, even, "top-k 2")
    n_kept = int(np.count_nonzero(np.asarray(answer, dtype=float)))
    if n_kept != 2:
        raise Wrong(
            f"top-k 2 of [0.2, 0.3, 0.2, 0.1, 0.2] keeps {n_kept} tokens: three share the second place, and one of "
            "them is to stay. Count tokens; a threshold can't tell equal ones apart"
        )
    expect(sorted(np.asarray(answer))[-2:], [0.4, 0.6], "what stays of [0.2, 0.3, 0.2, 0.1, 0.2] with top-k 2")
    answer = lesson.top_k(even.copy(), 3)
    expect(
        sorted(np.asarray(answer))[-3:],
        [2 / 7, 2 / 7, 3 / 7],
        "what stays of [0.2, 0.3, 0.2, 0.1, 0.2] with top-k 3",
        [([1 / 6, 1 / 3, 1 / 2], "with top-k 3 of [0.2, 0.3, 0.2, 0.1, 0.2] you keep 0.1, though there are three times "
                                 "0.2: equal probabilities are still different tokens")],
    )  # fmt: skip
    _keeps_its_argument(lesson.top_k, p, 3)
    for near in ([0.25, 0.25 + 2.0**-40, 0.5 - 2.0**-40], [0.25 + 2.0**-40, 0.25, 0.5 - 2.0**-40]):
        answer = np.asarray(lesson.top_k(np.array(near), 2), dtype=float)
        if answer.shape == (3,) and answer[near.index(0.25)] != 0:
            raise Wrong(f"top-k 2 of {near}: you keep 0.25, and the other is a little larger; float32 can't tell them "
                        "apart, float64 can")  # fmt: skip
    rng = draws("top_k")
    for n, k in ((int(rng.integers(30, 60)), int(rng.integers(5, 20))), (9, 20), (7, 1)):
        many = rng.dirichlet(np.ones(n))
        best = sorted(range(n), key=lambda i: -many[i])[:k]
        try:
            answer = lesson.top_k(many.copy(), k)
        except (IndexError, ValueError, RuntimeError) as error:
            raise Wrong(
                f"top-k {k} of {n} tokens: Python says “{error}”; if there are fewer than k, all stay"
            ) from None
        expect(answer, _kept(many, best), f"top-k {k} of {n} tokens")
    expect(lesson.top_k(p.copy(), 10), p, "top-k 10 of six tokens: all of them stay")


def top_p(lesson: ModuleType) -> None:
    p = np.array([0.04, 0.33, 0.11, 0.27, 0.16, 0.09])
    order = sorted(range(6), key=lambda i: -p[i])  # 1, 3, 4, 2, 5, 0: 0.33, 0.60, 0.76, 0.87, 0.96, 1
    with np.errstate(all="ignore"):
        _keeps_its_argument(lesson.top_p, p, 0.7)
        answer = lesson.top_p(p.copy(), 0.7)
        if answer is not None and np.shape(answer) == (6,) and np.isnan(np.asarray(answer, dtype=float)).all():
            raise Wrong("nothing stays: 0.7 is the mass of all that stay together, not a bound for each")
        expect(
            answer,
            _kept(p, order[:3]),
            "top-p 0.7 of [0.04, 0.33, 0.11, 0.27, 0.16, 0.09]",
            [
                (
                    _kept(p, order[:2]),
                    "tokens with 0.60 stay: you dropped the token that crosses 0.7. A set with at least 0.7 needs it",
                ),
                (_kept(p, order[:4]), "tokens with 0.87 stay; three of them have 0.76 already, which is enough"),
                (
                    np.array(sorted(_kept(p, order[:3]), reverse=True)),
                    "your numbers are sorted: the likeliest comes first, whatever its id is. Each number must go back "
                    "to the place of its token",
                ),
                (
                    _kept(p, range(4)),
                    "you added up the tokens in the order of their ids; the smallest set begins with the likeliest",
                ),
                (_kept(p, order[:3]) * 0.76, "the sum is 0.76: what stays must be made a whole again"),
                (
                    _kept(p, order[:3]) * 0.76 / 0.7,
                    "you divide by 0.7; what stays has 0.76, so its sum is now more than 1. Divide by what stays",
                ),
                (
                    p,
                    "all six tokens stay, and three have 0.76 already. Did you begin with the least likely? The "
                    "smallest set begins with the likeliest",
                ),
                (
                    _kept(p, order[:1]),
                    "only the likeliest stays: 0.7 is the mass of all that stay together, not a bound for each",
                ),
                *(
                    (
                        _kept(p, range(n)),
                        "you added up the sorted tokens, and laid the result over the unsorted ones: place 0 of the "
                        "sorted list is not token 0",
                    )
                    for n in (2, 3)
                ),
                (0 * p, "nothing stays: 0.7 is the mass of all that stay together, not a bound for each"),
            ],
        )
        sure = np.array([0.03, 0.02, 0.95])
        answer = lesson.top_p(sure.copy(), 0.9)
        if np.shape(answer) == (3,) and not np.isclose(np.sum(np.nan_to_num(answer)), 1):
            raise Wrong(
                "top-p 0.9 of [0.03, 0.02, 0.95] keeps nothing: the first token crosses 0.9 alone, and a model could "
                "not write on. The token that crosses the border stays"
            )
        expect(answer, [0, 0, 1], "top-p 0.9 of [0.03, 0.02, 0.95]")
        halves = np.array([0.125, 0.5, 0.25, 0.125])  # sums without any rounding
        expect(
            lesson.top_p(halves.copy(), 0.75),
            [0, 2 / 3, 1 / 3, 0],
            "top-p 0.75 of [0.125, 0.5, 0.25, 0.125]",
            [
                (
                    [1 / 7, 4 / 7, 2 / 7, 0],
                    "the two likeliest have exactly 0.75, which is *at least* 0.75: the third is not needed",
                ),
                (
                    [0, 4 / 7, 2 / 7, 1 / 7],
                    "the two likeliest have exactly 0.75, which is *at least* 0.75: the third is not needed",
                ),
                (halves, "the two likeliest have exactly 0.75, which is *at least* 0.75: no other is needed"),
                ([0, 1, 0, 0], "only 0.5 stays; with the second token it is 0.75, which is *at least* 0.75"),
            ],
        )
        n_kept = int(np.count_nonzero(np.asarray(lesson.top_p(np.full(4, 0.25), 0.5), dtype=float)))
        if n_kept != 2:
            raise Wrong(
                f"top-p 0.5 of [0.25, 0.25, 0.25, 0.25] keeps {n_kept} tokens; two of them have 0.5. Count tokens: a "
                "threshold can't tell equal ones apart"
            )
        expect(lesson.top_p(p.copy(), 0.99), p, "top-p 0.99 of six tokens, the least likely of which has 0.04")
        expect(
            lesson.top_p(np.full(10, 0.1), 1.0),
            np.full(10, 0.1),
            "top-p 1 of ten tokens of 0.1",
            [(np.eye(10)[i], "with top-p 1 a single token stays of ten: 0.1 added ten times is 0.9999999999999999 in a "
                             "computer, so no sum reaches 1. Ask which tokens have less than the mass *before* them")
             for i in range(10)],
        )  # fmt: skip
        expect(
            lesson.top_p(np.array([0.3, 0.5, 0.2]), 0.8005),
            [0.3, 0.5, 0.2],
            "top-p 0.8005 of [0.3, 0.5, 0.2]",
            [([0.375, 0.625, 0], "two tokens have 0.8, which is less than 0.8005: the third stays, too")],
        )
        near, tiny = np.array([0.25 - 2.0**-30, 0.5, 2.0**-30, 0.25]), 2.0**-30
        if np.count_nonzero(np.asarray(lesson.top_p(near.copy(), 0.75 + tiny), dtype=float)) == 2:
            raise Wrong("two tokens have 0.75, and the mass is a billionth more: the third stays, too. Float32 has too "
                        "few digits for it, and no slack was asked for")  # fmt: skip
        expect(lesson.top_p(near.copy(), 0.75), [0, 2 / 3, 0, 1 / 3], "top-p 0.75, which two tokens have exactly")
        rng = draws("top_p")
        for n in (int(rng.integers(30, 60)), 1):
            many, mass = rng.dirichlet(np.ones(n)), float(rng.uniform(0.5, 0.95))
            best, total = [], 0.0
            for i in sorted(range(n), key=lambda i: -many[i]):
                if total < mass:
                    best.append(i)
                    total += many[i]
            expect(lesson.top_p(many.copy(), mass), _kept(many, best), f"top-p {mass:.2f} of {n} token{'s' * (n > 1)}")


# ---- Less work ----


def positions_computed(lesson: ModuleType) -> None:
    P, N = 7, 5
    without = sum(P + i for i in range(N))
    expect(
        lesson.positions_computed(P, N, True),
        P + N - 1,
        "positions for 5 tokens after 7, with a cache",
        [
            (P + N, "you have 12: the fifth new token is written, but nobody reads it"),
            (N, "you have 5: the prompt must be read, too"),
            (N - 1, "you have 4: the prompt must be read, too"),
            (P * N, "you have 35: with a cache the prompt is read once, not for each new token"),
            (without, "you have 45, the number without a cache: what is cached is not computed again"),
        ],
    )
    expect(
        lesson.positions_computed(P, N, False),
        without,
        "positions for 5 tokens after 7, without a cache",
        [
            (P * N, "you have 35: the text grows. The first new token needs 7 positions, the second 8"),
            (sum(P + i for i in range(N + 1)), "you have 57: after the fifth new token, nothing needs to be read"),
            ((P + N - 1) ** 2, "you have 121, 11²: not every token is there from the start"),
            (sum(P + i + 1 for i in range(N)), "you have 50: for the first new token only the prompt is read"),
            (
                sum(P + i for i in range(N - 1)),
                "you have 34, the work for four new tokens: the fifth needs 11 positions, too",
            ),
            (N * (P + N), "you have 60: not every token is there from the start. The first needs only the prompt"),
            (sum(range(P + N)), "you have 66: the prompt is read at once, not token by token"),
            (sum(range(N)), "you have 10: the prompt is read again for each new token, and you left it out"),
            (sum(range(1, N + 1)), "you have 15: the prompt is read again for each new token, and you left it out"),
            ((P + N) ** 2, "you have 144, (7 + 5)²: not every token is there from the start"),
            (P + N - 1, "you have 11, the number with a cache: without one, all is read again for each new token"),
        ],
    )
    expect(lesson.positions_computed(3, 1, True), 3, "positions for one token after 3, with a cache")
    expect(lesson.positions_computed(3, 1, False), 3, "positions for one token after 3, without a cache")
    expect(lesson.positions_computed(1, 100, False), 5050, "positions for 100 tokens after 1, without a cache")
    for P, N in draws("positions_computed").integers(2, 60, (4, 2)).tolist():
        what = f"positions for {N} tokens after {P}"
        expect(lesson.positions_computed(P, N, True), P + N - 1, f"{what}, with a cache")
        expect(lesson.positions_computed(P, N, False), sum(range(P, P + N)), f"{what}, without a cache")


# ---- Searching ----

Tree = Mapping[tuple, Mapping[str, float]]

# Nothing follows a text that is not named. Two beams are a and b, then ab and "a.", "a." and abc, "a." and "abc.".
_TREE: Tree = {
    (): {"a": 0.5, "b": 0.3, "c": 0.2},
    ("a",): {"b": 0.6, "c": 0.1, ".": 0.3},
    ("b",): {"a": 0.34, "c": 0.37, ".": 0.29},
    ("c",): {".": 0.95, "a": 0.05},
    ("a", "b"): {"a": 0.3, "b": 0.1, "c": 0.35, ".": 0.25},
    ("a", "b", "c"): {".": 0.8, "a": 0.2},
    ("a", "b", "a"): {"b": 0.5, ".": 0.5},
    ("a", "c"): {".": 1.0},
    ("b", "a"): {".": 0.55, "c": 0.45},
    ("b", "c"): {".": 0.97, "a": 0.03},
}

# With two beams "a." takes a place for good, so bac is lost, and with it bacaaa. With three it is found.
_DEEP_TREE: Tree = {
    (): {"a": 0.5, "b": 0.4, "c": 0.1},
    ("a",): {".": 0.6, "b": 0.25, "c": 0.15},
    ("b",): {"a": 0.7, ".": 0.3},
    ("b", "a"): {"b": 0.55, "c": 0.45},
    ("b", "a", "b"): {".": 0.4, "a": 0.35, "c": 0.25},
    ("b", "a", "c"): {"a": 1.0},
    ("b", "a", "c", "a"): {"a": 1.0},
    ("b", "a", "c", "a", "a"): {"a": 0.97, ".": 0.03},
}


def _search(
    following: Callable[[tuple], Mapping], n_beams: int, keep: Callable[[list], list] | None = None, adds: bool = False
) -> list[tuple[tuple, float]]:
    """Beam search over probabilities, with switches for mistakes: how candidates are chosen, and sums for products."""
    beams: list[tuple[tuple, float]] = [((), 0.0 if adds else 1.0)]
    while any(following(text) for text, _ in beams):
        families = [
            [((*text, token), p + q if adds else p * q) for token, q in following(text).items()] or [(text, p)]
            for text, p in beams
        ]
        if keep:
            beams = keep(families)
        else:
            beams = sorted((each for family in families for each in family), key=lambda each: -each[1])[:n_beams]
    return sorted(beams, key=lambda each: -each[1])


def _all_texts(following: Callable[[tuple], Mapping], text: tuple = (), p: float = 1.0) -> list[tuple[tuple, float]]:
    tokens = following(text)
    if not tokens:
        return [(text, p)]
    return [each for token, q in tokens.items() for each in _all_texts(following, (*text, token), p * q)]


def _written(text: tuple) -> str:
    return "".join(map(str, text)) or "the empty text"


def _of_tuples(following: Callable[[tuple], Mapping]) -> Callable[[tuple], Mapping]:
    """The same tree, which tells those who ask for another kind of text what a text is."""

    def asked(text: tuple) -> Mapping:
        if not isinstance(text, tuple):
            raise Wrong(f"you ask what follows a {type(text).__name__}; a text is a tuple of tokens, and () the first")
        return following(text)

    return asked


def beam_search(lesson: ModuleType) -> None:
    trees = [
        (name, _of_tuples(following))
        for name, following in (
            ("the notes' tree", lesson.small_tree),
            ("another tree", lambda text: dict(_TREE.get(text, {}))),
            ("a deep tree", lambda text: dict(_DEEP_TREE.get(text, {}))),
        )
    ]
    for name, following in trees:
        for n_beams in (1, 2, 3):
            _compare(lesson, name, following, n_beams)
    everything = sorted(_all_texts(trees[1][1]), key=lambda each: -each[1])
    found = _pairs(lesson.beam_search(trees[1][1], 50), "50 beams in a tree of fewer texts")
    if len(found) != len(everything):
        raise Wrong(f"50 beams in a tree of {len(everything)} texts find {len(found)}; nothing should be lost")
    expect(
        [log_p for _, log_p in found],
        [math.log(p) for _, p in everything],
        "the logarithms of all texts, likeliest first",
    )
    rng = draws("beam_search")
    for n_tokens in (3, 4):
        tree = _random_tree(rng, n_tokens)
        for n_beams in (1, 2, 4):
            following = _of_tuples(lambda text, tree=tree: dict(tree.get(text, {})))
            try:
                _compare(lesson, f"a tree of {n_tokens} tokens", following, n_beams)
            except TypeError:
                raise Wrong(
                    "your search goes wrong where the tokens are numbers, as in the tree of the fables: put them "
                    "into the tuple as they are, whatever they are"
                ) from None
    _dots_and_nothing(lesson)
    _a_long_text(lesson)


def _dots_and_nothing(lesson: ModuleType) -> None:
    """Only what `following` says tells where a text ends: here one goes on after a dot, and the beginning is an end."""
    tree: Tree = {(): {".": 0.6, "a": 0.4}, (".",): {".": 0.7, "a": 0.3}, ("a",): {".": 1.0}, ("a", "."): {".": 1.0}}
    following = _of_tuples(lambda text: tree.get(text, {}))  # the tree's own dictionaries
    before = {text: dict(each) for text, each in tree.items()}
    found = _pairs(lesson.beam_search(following, 2), "2 beams in a tree of dots")
    if tree != before:
        raise Wrong("you change the dictionary that `following` returns, as `pop` does; it may be the tree itself")
    if any(following(text) for text, _ in found):
        raise Wrong("2 beams in a tree of dots: after one dot another may come, and you end at the first; a text is "
                    "complete when `following` has nothing for it")  # fmt: skip
    expect(sorted(math.exp(p) for _, p in found), [0.4, 0.42], "2 beams in a tree of dots")
    zeros: Tree = {(): {0: 0.6, 1: 0.4}, (0,): {1: 0.9, 0: 0.1}}  # the grammar's options have such numbers
    words: Tree = {(): {"fox": 0.6, "hen": 0.4}, ("fox",): {"ran": 0.9, ".": 0.1}}
    for tree, best, why in (
        (zeros, (0, 1), "a token may be the number 0; as a condition, Python takes that for false"),
        (words, ("fox", "ran"), "a token may be a word: it is one token, not its letters"),
    ):
        found = _pairs(lesson.beam_search(_of_tuples(lambda text, tree=tree: dict(tree.get(text, {}))), 2), why)
        if not found or found[0][0] != best:
            raise Wrong(f"the likeliest of three texts is {best}, and you find {found[:1]}: {why}")
    try:
        found = _pairs(lesson.beam_search(_of_tuples(lambda text: {}), 3), "a tree without a token")
    except IndexError:
        found = []
    if found != [((), 0.0)]:
        raise Wrong("nothing follows the beginning: () is complete then, and the only text, with ln 1 = 0")


def _random_tree(rng: np.random.Generator, n_tokens: int) -> dict[tuple, dict[int, float]]:
    """A tree of four levels. Its tokens are numbers: only what `following` says tells where a text ends."""
    tree: dict[tuple, dict[int, float]] = {}
    level: list[tuple] = [()]
    for _ in range(4):
        for text in level:
            if not text or rng.random() < 0.8:
                tree[text] = dict(enumerate(rng.dirichlet(np.ones(n_tokens)).tolist(), start=10))
        level = [(*text, token) for text in level if text in tree for token in tree[text]]
    return tree


def _a_long_text(lesson: ModuleType) -> None:
    """Each of 400 tokens is one of 20, so every text is less likely than any number but 0 that a computer has."""
    p = {token: (token + 1) / 210 for token in range(20)}
    following = _of_tuples(lambda text: {} if len(text) == 400 else dict(p))
    product = Wrong("a text of 400 tokens: your probability has become 0, since a computer has no number as small as "
                    "10^-408. Add logarithms from the start, not only at the end")  # fmt: skip
    with np.errstate(all="ignore"):
        try:
            found = _pairs(lesson.beam_search(following, 2), "2 beams, and texts of 400 tokens")
        except (ValueError, ArithmeticError):
            raise product from None
    if any(log_p == -math.inf for _, log_p in found):
        raise product
    if len(found) != 2 or any(len(text) != 400 for text, _ in found):
        raise Wrong(f"texts of 400 tokens: yours have {' and '.join(str(len(text)) for text, _ in found)}; the search "
                    "ends when all beams are complete, however long that takes")  # fmt: skip
    best = 400 * math.log(20 / 210)
    expect([log_p for _, log_p in found], [best, best + math.log(19 / 20)], "2 beams, and texts of 400 tokens")


def _pairs(answer: Any, what: str) -> list[tuple[tuple, float]]:
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    try:
        if any(isinstance(text, list) for text, _ in answer):
            raise Wrong(f"{what}: a text of yours is a list; a text is a tuple of tokens, so that a dictionary can "
                        "have it as a key")  # fmt: skip
        return [(tuple(text), float(log_p)) for text, log_p in answer]
    except (TypeError, ValueError):
        raise Wrong(f"{what}: a list of pairs is expected, each a text and the ln of its probability") from None


def _compare(lesson: ModuleType, name: str, following: Callable[[tuple], Mapping], n_beams: int) -> None:
    right = _search(following, n_beams)
    what = f"{n_beams} beam{'s' if n_beams > 1 else ''} in {name}"
    found = _pairs(lesson.beam_search(following, n_beams), what)
    texts, right_texts = [text for text, _ in found], [text for text, _ in right]
    if texts == right_texts:
        _compare_numbers(following, found, right, what)
        return
    unfinished = [text for text in texts if following(text)]
    if unfinished:
        raise Wrong(f"{what}: {_written(unfinished[0])} is not complete, and the search has ended")
    everything = dict(sorted(_all_texts(following), key=lambda each: -each[1])[:n_beams])
    p_of = dict(_all_texts(following))
    for wrong, sentence in _mistakes(following, n_beams):
        if _agree(found, wrong) or _agree(found, wrong[:n_beams]):
            place = next((i for i, text in enumerate(texts[: len(right)]) if text != right[i][0]), None)
            if place is not None:
                text, (should_be, p) = texts[place], right[place]
                raise Wrong(
                    f"{what}: you find {_written(text)} with {p_of[text]:.3g}, not {_written(should_be)} with "
                    f"{p:.3g}: {sentence}"
                )
    if n_beams < 3 and texts == list(everything):
        raise Wrong(
            f"{what}: you find the likeliest texts of all; so few beams can't see them. Is it a search of everything?"
        )
    if sorted(texts) == sorted(right_texts):
        raise Wrong(f"{what}: the right texts, but not with the likeliest first")
    if len(texts) != len(right_texts):
        raise Wrong(f"{what}: you return {len(texts)} texts, not {len(right_texts)}")
    p_found = [p_of.get(text, 0.0) for text in texts]
    too_likely = sum(p_found) > sum(_probabilities(right))
    why = " So few beams can't find them: do more of them go on from round to round?" if too_likely else ""
    raise Wrong(f"{what}: you find {_listed(texts, p_found)}, not {_listed(right_texts, _probabilities(right))}.{why}")


def _probabilities(pairs: list[tuple[tuple, float]]) -> list[float]:
    return [p for _, p in pairs]


def _listed(texts: list[tuple], p: list[float]) -> str:
    return " and ".join(f"{_written(text)} with {each:.3g}" for text, each in zip(texts, p, strict=True))


def _mistakes(following: Callable[[tuple], Mapping], n_beams: int) -> list[tuple[list[tuple[tuple, float]], str]]:
    def apart(families: list) -> list:
        if len(families) == 1:
            return sorted(families[0], key=lambda each: -each[1])[:n_beams]
        return [max(family, key=lambda each: each[1]) for family in families]

    def least(families: list) -> list:
        return sorted((each for family in families for each in family), key=lambda each: each[1])[:n_beams]

    def by_text(families: list) -> list:
        return sorted((each for family in families for each in family), reverse=True)[:n_beams]

    return [
        (
            _search(following, n_beams, keep=least),
            "you keep the least likely beams, or sort pairs as they are: Python then looks at the text first",
        ),
        (
            _search(following, n_beams, keep=by_text),
            "you sort pairs as they are, and Python looks at the text first; the probability decides",
        ),
        (
            _search(
                following, n_beams, keep=lambda families: _all_complete_and_some_open(following, families, n_beams)
            ),
            "your complete texts take nobody's place, so more open ones go on. Here all compete for the same places",
        ),
        (
            _with_complete_apart(following, n_beams),
            "so few beams can't see it. Did you set complete texts aside, or search everything? Complete texts and "
            "open ones compete for the same places in each round",
        ),
        (
            _search(following, n_beams, keep=apart),
            "each beam went on by itself, with its own best continuation. The continuations of all beams compete: both "
            "may come from the same one",
        ),
        (
            _search(following, n_beams, adds=True),
            "you added the probabilities of the tokens; that of a text is their product, and only logarithms add up. "
            "With sums, longer texts win",
        ),
        (
            _without_complete(following, n_beams),
            "a text that was complete is gone. It stays in the race: it keeps its probability, while the others still "
            "lose",
        ),
    ]


def _agree(found: list[tuple[tuple, float]], wrong: list[tuple[tuple, float]]) -> bool:
    """Whether these are the texts, with these numbers or their logarithms."""
    given, numbers = [log_p for _, log_p in found], np.array([p for _, p in wrong])
    same_texts = [text for text, _ in found] == [text for text, _ in wrong]
    return same_texts and (np.allclose(given, numbers) or np.allclose(given, np.log(numbers)))


def _without_complete(following: Callable[[tuple], Mapping], n_beams: int) -> list[tuple[tuple, float]]:
    """A search in which complete texts are dropped until the last round."""
    beams: list[tuple[tuple, float]] = [((), 1.0)]
    while True:
        new = [((*text, token), p * q) for text, p in beams for token, q in following(text).items()]
        if not new:
            return beams
        beams = sorted(new, key=lambda each: -each[1])[:n_beams]


def _all_complete_and_some_open(following: Callable[[tuple], Mapping], families: list, n_beams: int) -> list:
    complete = [family[0] for family in families if len(family) == 1 and not following(family[0][0])]
    new = [each for family in families for each in family if each not in complete]
    return complete + sorted(new, key=lambda each: -each[1])[:n_beams]


def _with_complete_apart(following: Callable[[tuple], Mapping], n_beams: int) -> list[tuple[tuple, float]]:
    """A search that sets complete texts aside, as Pellucid's does, and so compares them with each other alone."""
    beams: list[tuple[tuple, float]] = [((), 1.0)]
    complete: list[tuple[tuple, float]] = []
    while beams:
        new = [((*text, token), p * q) for text, p in beams for token, q in following(text).items()]
        complete += [each for each in new if not following(each[0])]
        beams = sorted((each for each in new if following(each[0])), key=lambda each: -each[1])[:n_beams]
    return sorted(complete, key=lambda each: -each[1])[:n_beams]


def _steps(following: Callable[[tuple], Mapping], text: tuple) -> list[float]:
    """The probability of each token of a text."""
    return [following(text[:i])[token] for i, token in enumerate(text)]


def _compare_numbers(following: Callable[[tuple], Mapping], found: list, right: list, what: str) -> None:
    p = np.array([p for _, p in right])
    expect(
        [log_p for _, log_p in found],
        np.log(p),
        f"{what}: the logarithms",
        [
            (p, f"{what}: the texts are right, but the numbers are probabilities; their logarithms are expected"),
            (-np.log(p), f"{what}: the texts are right, but you return -ln p, the surprise"),
            (
                [math.fsum(_steps(following, text)) for text, _ in right],
                f"{what}: the text is right, but you added the probabilities of the tokens; that of a text is their "
                "product, and only logarithms add up. With sums, longer texts win",
            ),
            (np.log2(p), f"{what}: the texts are right, but the logarithms are those to the base 2"),
            (np.log10(p), f"{what}: the texts are right, but the logarithms are those to the base 10"),
            (
                [math.log(_steps(following, text)[-1]) for text, _ in right],
                f"{what}: the text is right, but this is ln p of its last token; a beam carries the sum so far along",
            ),
        ],
    )


def length_normalised(lesson: ModuleType) -> None:
    log_p = np.log([0.5, 0.9, 0.2, 0.6, 0.7, 0.4, 0.8, 0.3, 0.9, 0.5, 0.6, 0.7])  # 9 tokens after a prompt of 3
    answer, everything = float(sum(log_p[3:])), float(sum(log_p))
    for penalty in (1.0, 0.5, 0.0):
        expect(
            lesson.length_normalised(log_p.copy(), 3, penalty),
            answer / 9**penalty,
            f"the score of 9 tokens after a prompt of 3, with a penalty of {penalty:g}",
            [
                (
                    answer / 12**penalty,
                    "the length is 12, with the prompt; the answer has 9 tokens. The longer the prompt, the less would "
                    "the length of an answer matter",
                ),
                (
                    everything / 12**penalty,
                    "the prompt's tokens are in the sum, too. Nobody chose them: they are the same for every answer",
                ),
                (everything / 9**penalty, "the prompt's tokens are in the sum; only those of the answer count"),
                (float(sum(log_p[:3])) / 3**penalty, "you scored the prompt; the answer comes after it"),
                (
                    answer / 9,
                    f"you divide by the length itself, whatever the penalty is: with {penalty:g} it is "
                    f"9 to the power of {penalty:g}, which is {9**penalty:g}",
                ),
                (answer / 9 * penalty, "the penalty is an exponent, not a factor"),
                (answer / (9 * penalty or 1), "the penalty is an exponent, not a factor"),
                (answer * 9**penalty, "you multiply by the length, so that long answers lose twice"),
                (
                    float(sum(log_p[2:])) / 10**penalty,
                    "the last token of the prompt is in it, too: after a prompt of 3, the answer begins at place 3",
                ),
                (
                    float(sum(np.exp(log_p[3:]))) / 9**penalty,
                    "you added probabilities; that of an answer is their product, so the logarithms are added",
                ),
                (
                    float(sum(log_p[4:])) / 8**penalty,
                    "the first token of the answer is missing: after a prompt of 3, it is the one at place 3",
                ),
                (-answer / 9**penalty, "the sign is turned: a score is at most 0, and the likelier answer has more"),
            ],
        )
    expect(lesson.length_normalised(log_p[3:].copy(), 0, 1.0), answer / 9, "the score of 9 tokens without a prompt")
    _keeps_its_argument(lambda numbers, n: lesson.length_normalised(numbers, n, 1.0), np.array(log_p), 3)
    rng = draws("length_normalised")
    for n, penalty in ((int(rng.integers(15, 40)), float(rng.uniform(1.2, 2))), (1, 0.7)):
        log_p, n_prompt = np.log(rng.random(n + 4)), 4
        certain = n // 2 if n > 1 else 0
        log_p[4 : 4 + certain] = 0.0  # tokens that had to come
        total = float(sum(log_p[4:]))
        what = f"the score of {n} token{'s' * (n > 1)} after a prompt of 4, with a penalty of {penalty:.2f}"
        skips = f"you don't count the {certain} tokens with ln p = 0; they had to come, but they are written, too"
        answer = lesson.length_normalised(log_p.copy(), n_prompt, penalty)
        expect(answer, total / n**penalty, what, [(total / (n - certain) ** penalty, skips)])


def fill_gap(lesson: ModuleType) -> None:
    rng = draws("fill_gap")
    for V, T in ((3, 4), (4, 3)):
        texts_NT = np.array(list(itertools.product(range(V), repeat=T)))
        texts_NT = texts_NT[rng.random(len(texts_NT)) < 0.8]
        p_N = rng.dirichlet(np.ones(len(texts_NT)))
        for place in (1, T - 1, 0):
            text_T = texts_NT[rng.integers(len(texts_NT))]
            masses, left, right = np.zeros(V), np.zeros(V), np.zeros(V)
            for text, p in zip(texts_NT.tolist(), p_N.tolist(), strict=True):
                agrees = [a == b for a, b in zip(text, text_T.tolist(), strict=True)]
                masses[text[place]] += p * all(agrees[:place] + agrees[place + 1 :])
                left[text[place]] += p * all(agrees[:place])
                right[text[place]] += p * all(agrees[place + 1 :])
            of_word = np.eye(V)[text_T[place]]
            mistakes = [
                (
                    left / left.sum(),
                    "you look at the words before the gap alone, as a decoder does; those after it tell something, too",
                ),
                (right / right.sum(), "you look at the words after the gap alone"),
                (
                    masses,
                    "the probabilities of the texts that agree are not yet those of the word: they have to sum to 1",
                ),
                (of_word, "you look at the word that stands in the gap; only the others are known"),
                (
                    _evenly(texts_NT, text_T, place, V),
                    "all texts that agree count alike in yours, but some are likelier than others",
                ),
            ]
            what = f"the word at place {place} of a text of {T} words"
            expect(call(what, lesson.fill_gap, texts_NT, p_N, text_T, place, V), masses / masses.sum(), what, mistakes)


def _evenly(texts_NT: Array, text_T: Array, place: int, V: int) -> Array:
    """The mistake of counting texts instead of adding their probabilities."""
    agrees_N = np.delete(texts_NT == text_T, place, axis=1).all(axis=1)
    counts = np.bincount(texts_NT[agrees_N, place], minlength=V)
    return counts / counts.sum()

"""Checks of lesson 16. Right answers are computed here by lists of all cases, or by plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from pellucid.course.checks import Wrong, call, draws, expect, unchanged

Array = np.ndarray


def _way(arrows_N: Array, start: int, n_steps: int) -> list[int]:
    names = [start]
    for _ in range(n_steps):
        names.append(int(arrows_N[names[-1]]))
    return names[1:]


def way(lesson: ModuleType) -> None:
    rng = draws("way")
    for N, start, n_steps in ((5, 2, 3), (9, 7, 6), (4, 0, 1)):
        arrows_N = np.roll(np.arange(N), 1)[rng.permutation(N)]
        right = _way(arrows_N, start, n_steps)
        answer = call("another text", lesson.way, arrows_N, start, n_steps) if N != 5 else unchanged(
            lesson.way, arrows_N, start, n_steps
        )  # fmt: skip
        at_once = [int(arrows_N[start])] * n_steps
        inverse = _way(np.argsort(arrows_N), start, n_steps)
        mistakes = [
            (at_once, "you follow the first arrow again and again: the next one begins where the last one ended"),
            (inverse, "you follow the arrows backwards: `arrows_N[n]` is where the arrow of n leads"),
            ([start, *right[:-1]], "you begin with the name in the question; the first name on the way is the one to "
             "which it leads"),
        ]  # fmt: skip
        if answer is not None and np.shape(answer) == () and n_steps > 1:
            raise Wrong("all names on the way are asked for, not the last one alone")
        expect(answer, right, f"the way of {n_steps} arrows from name {start} of {N}", mistakes)


def layers_needed(lesson: ModuleType) -> None:
    for n_steps in (9, 16, *range(1, 9), 17, 1000, 2**29, 2**29 + 1, 2**60 + 1):
        right, reach = 0, 1
        while reach < n_steps:
            right, reach = right + 1, 2 * reach
        answer = lesson.layers_needed(n_steps)
        mistakes = [
            (n_steps - 1, "one arrow more with each layer would be so many; but a layer can put together two ways of "
             "several arrows"),
            (n_steps, "so many layers as arrows: the first arrow stands in the text, and later layers can put long "
             "ways together"),
            (right + 1, f"you count a layer for the first arrow of {n_steps}, but the text itself says where one "
             "arrow leads"),
            (right - 1, f"for {n_steps} arrows: after so many layers the longest way has only {(reach + 1) // 2}"),
        ]  # fmt: skip
        if n_steps > 1000:
            mistakes = [
                (
                    right - 1,
                    f"nearly: the logarithm of {n_steps} was rounded to a whole number; count with whole numbers",
                ),
                (right + 1, f"nearly: the logarithm of {n_steps} was rounded up; count with whole numbers"),
            ]
        expect(answer, right, f"the layers for {n_steps} arrows", mistakes)


def _log_sum(log_p: Array) -> float:
    """ln Σ e^x, with whole numbers of digits to spare."""
    largest = max(log_p)
    return -math.inf if largest == -math.inf else largest + math.log(math.fsum(math.exp(x - largest) for x in log_p))


def answer_log_p(lesson: ModuleType) -> None:
    rng = draws("answer_log_p")
    thoughts_Z, answer_Z = np.log(rng.dirichlet(np.ones(7))), np.log(rng.uniform(0.1, 1, 7))
    right = _log_sum(thoughts_Z + answer_Z)
    mistakes = [
        (float(np.sum(np.exp(thoughts_Z) * answer_Z)), "that is the mean of ln p(answer | thought); the mean of the "
         "probabilities is asked for, and then its logarithm"),
        (math.exp(right), "that is p(answer); its logarithm is asked for"),
        (_log_sum(answer_Z), "the thoughts have probabilities of their own: a likely thought counts more"),
        (_log_sum(answer_Z) - math.log(7), "all thoughts count alike in your sum; a likely thought counts more"),
        (float(np.sum(thoughts_Z + answer_Z)), "that is the logarithm of a product over all thoughts; only one of "
         "them is written"),
        (float(np.max(thoughts_Z + answer_Z)), "the likeliest thought alone is not all: others lead to the answer, "
         "too"),
    ]  # fmt: skip
    expect(unchanged(lesson.answer_log_p, thoughts_Z, answer_Z), right, "ln p(answer) over seven thoughts", mistakes)
    long_Z = thoughts_Z - 2000.0
    answer = call("thoughts of a thousand steps", lesson.answer_log_p, long_Z, answer_Z)
    if answer is not None and np.shape(answer) == () and not np.isfinite(float(answer)):
        raise Wrong("right for short thoughts; a long one has probability e^-2000, which is rounded to 0, and its "
         "logarithm "
                    "is -inf: stay with logarithms (`np.logaddexp`)")  # fmt: skip
    expect(answer, right - 2000.0, "ln p(answer) over long thoughts")
    answer_Z[::2] = -np.inf
    expect(call("thoughts after which the answer is impossible", lesson.answer_log_p, thoughts_Z, answer_Z),
           _log_sum(thoughts_Z + answer_Z), "ln p(answer), which is impossible after some thoughts")  # fmt: skip


def sampled_log_p(lesson: ModuleType) -> None:
    answer_S = np.log(draws("sampled_log_p").uniform(0.01, 1, 9))
    right = _log_sum(answer_S) - math.log(9)
    mistakes = [
        (float(answer_S.mean()), "that is the mean of the logarithms; the logarithm of the mean is asked for"),
        (_log_sum(answer_S), "you add the nine probabilities, but their mean is what estimates p(answer)"),
        (math.exp(right), "that is p(answer); its logarithm is asked for"),
        (float(answer_S.max()), "the best of the thoughts is not the mean of all"),
    ]
    expect(unchanged(lesson.sampled_log_p, answer_S), right, "the estimate from nine thoughts", mistakes)
    one = call("a single thought", lesson.sampled_log_p, answer_S[:1])
    expect(one, float(answer_S[0]), "the estimate from one thought")
    tiny = call("answers of a thousand tokens", lesson.sampled_log_p, answer_S - 3000.0)
    if tiny is not None and np.shape(tiny) == () and not np.isfinite(float(tiny)):
        raise Wrong("right for short answers; a long one has probability e^-3000, which is rounded to 0, and its "
         "logarithm "
                    "is -inf: stay with logarithms (`np.logaddexp`)")  # fmt: skip
    expect(tiny, right - 3000.0, "the estimate for long answers")


def any_right(lesson: ModuleType) -> None:
    p_right_Q, n = draws("any_right").uniform(0.05, 0.9, 5), 4
    right = math.fsum(1 - (1 - p) ** n for p in p_right_Q) / 5
    mean = float(p_right_Q.mean())
    mistakes = [
        (1 - (1 - mean) ** n, "you take the mean of the questions first; but hard questions stay wrong, however easy "
         "the others are"),
        (float((p_right_Q**n).mean()), "that is how often all n answers are right"),
        (n * mean, "probabilities of cases that can happen together do not add up: two answers may be right at once"),
        (float(((1 - p_right_Q) ** n).mean()), "that is how often none is right"),
    ]  # fmt: skip
    expect(
        unchanged(lesson.any_right, p_right_Q, n), right, "one of four answers is right, of five questions", mistakes
    )
    for sure_Q in (np.array([1.0, 0.0, 0.0]), np.array([1.0])):
        expect(call("questions that are always or never right", lesson.any_right, sure_Q, 3), sure_Q.mean(),
               "one of three answers, where questions are always or never right")  # fmt: skip


def _majority(p_A: Sequence[float], n: int, lot: bool = True) -> float:
    """By counts of votes, each with its number of orders."""
    A, total = len(p_A), 0.0
    for votes in itertools.product(range(n + 1), repeat=A):
        if sum(votes) == n and votes[0] == max(votes):
            orders = math.factorial(n) // math.prod(map(math.factorial, votes))
            p = orders * math.prod(p**v for p, v in zip(p_A, votes, strict=True))
            total += p / (votes.count(votes[0]) if lot else 1)
    return total


def majority(lesson: ModuleType) -> None:
    p_A, n = draws("majority").dirichlet(np.ones(3)), 4
    right, kept = _majority(p_A, n), _majority(p_A, n, lot=False)
    more_than_half = math.fsum(
        math.comb(n, k) * p_A[0] ** k * (1 - p_A[0]) ** (n - k) for k in range(n // 2 + 1, n + 1)
    )
    mistakes = [
        (kept, "you give every tie to answer 0; with two answers at the top it wins in half of the cases"),
        (more_than_half, "most votes are not more than half of them: with three answers, two of four may be enough "
         "to win"),
        (p_A[0], "that is how often one answer is right"),
    ]  # fmt: skip
    expect(unchanged(lesson.majority, p_A, n), right, "the vote of four among three answers", mistakes)
    for p_A, n in ((np.array([0.3, 0.7]), 5), (np.array([0.25] * 4), 3), (np.array([1.0, 0.0]), 2)):
        what = f"the vote of {n} among {len(p_A)} answers"
        expect(call(what, lesson.majority, p_A, n), _majority(p_A, n), what)


def best_length(lesson: ModuleType) -> None:
    p_right_K = [0.2, 0.25, 0.6, 0.9, 0.91]
    mistaken = "the most often right answer is not the one that earns most: every step has its price"
    for price, right in ((0.0, 4), (0.1, 3), (0.2, 3), (0.25, 0), (2.0, 0)):
        answer = unchanged(lesson.best_length, p_right_K, price)
        expect(answer, right, f"the best number of steps at the price {price}", [(4, mistaken), (right + 1, "steps "
         "are counted from 0: an answer without thought is a choice, too")])  # fmt: skip
    expect(lesson.best_length([0.5, 0.5, 0.5], 0.0), 0, "of three lengths that earn the same, the smallest",
           [(2, "of lengths that earn the same, the smallest is asked for")])  # fmt: skip
    random_K = draws("best_length").uniform(0, 1, 12).tolist()
    earned = [p - 0.03 * k for k, p in enumerate(random_K)]
    expect(call("twelve lengths", lesson.best_length, random_K, 0.03), earned.index(max(earned)), "of twelve lengths")


def thinks(lesson: ModuleType) -> None:
    p_before, gain, length, price, beta = 0.1, 0.6, 3, 0.15, 0.05

    def right(p_before: float, gain: float, length: int, price: float, beta: float) -> float:
        odds = p_before / (1 - p_before) * math.exp((gain - price * length) / beta)
        return odds / (1 + odds)

    sigmoid = 1 / (1 + math.exp(-(gain - price * length) / beta))
    mistakes = [
        (sigmoid, "your policy forgets what it did before: it thought in one case of ten"),
        (right(p_before, gain, 1, price, beta), "the price is that of one step, and the thought has three"),
        (right(p_before, gain, 0, price, beta), "your thoughts cost nothing"),
        (right(p_before, gain, length, price, 1.0), "beta is missing: the smaller it is, the more rewards count"),
        (right(p_before, gain, length, price, 1 / beta), "rewards are divided by beta, not multiplied"),
        (p_before * math.exp((gain - price * length) / beta), "the two weights have to be divided by their sum, or "
         "it is no probability"),
    ]  # fmt: skip
    expect(lesson.thinks(p_before, gain, length, price, beta), right(p_before, gain, length, price, beta),
           "how often it thinks", mistakes)  # fmt: skip
    for arguments, limit in (((0.1, 0.9, 1, 0.1, 1e-4), 1.0), ((0.1, 0.1, 1, 0.9, 1e-4), 0.0)):
        try:
            answer = lesson.thinks(*arguments)
        except OverflowError:
            answer = math.nan
        if answer is not None and np.shape(answer) == () and math.isnan(float(answer)):
            raise Wrong("right, but for a small beta e^(R / beta) is infinite: only the difference of the two "
             "rewards counts, and "
                        "1 / (1 + e^-x) has a form for large x and one for small ones")  # fmt: skip
        expect(answer, limit, "how often it thinks, if divergence costs next to nothing")


def followed(lesson: ModuleType) -> None:
    rng = draws("followed")
    for K, place in ((2, 1), (4, 1), (3, 0)):
        arrows_QN = np.array([rng.permutation(7) for _ in range(40)])
        thoughts_QK = np.array([_way(arrows_N, 0, K) for arrows_N in arrows_QN])
        before_Q = [_way(arrows_N, 0, K + 1)[-1] for arrows_N in arrows_QN]
        thoughts_QK[:, place] = (thoughts_QK[:, place] + rng.integers(0, 3, 40)) % 7  # of some, nothing has changed
        now_Q = [_way(a, int(t[place]), K - place)[-1] for a, t in zip(arrows_QN, thoughts_QK, strict=True)]
        answers_Q = np.array([[n, b, 6 - n][int(rng.integers(3))] for n, b in zip(now_Q, before_Q, strict=True)])
        counts, all_counts = np.zeros(3), np.zeros(3)
        for now, before, answer in zip(now_Q, before_Q, answers_Q, strict=True):
            which = 0 if answer == now else 1 if answer == before else 2
            all_counts[which] += 1
            counts[which] += now != before
        right = counts / counts.sum()
        mistakes = [
            (all_counts / 40, "you count questions in which both ways end at the same name; they say nothing about "
             "what the answer follows"),
            (counts / 40, "you leave questions out of the counts, but divide by the number of all; the three shares "
             "must sum to 1"),
            (right[[1, 0, 2]], "the first share is that of the changed thought, the second that of the thought as it "
             "was"),
        ]  # fmt: skip
        answer = call(f"thoughts of {K} names", lesson.followed, arrows_QN, thoughts_QK, answers_Q, place)
        expect(answer, right, f"the shares, name {place} of {K} changed", mistakes)

"""Lesson 16: thinking. Write what is missing, then run `pellucid learn 16`.

The last letters of a name are the axes: N names, Z all thoughts, S thoughts that were drawn, A answers, Q questions,
K steps of a thought. Names are numbers from 0, and `arrows_N[n]` is the name to which the arrow of name n leads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray

# ---- A model that is right in nine steps of ten ----

NAMES = "abcdef"
ARROWS_N = np.array([2, 4, 5, 0, 3, 1])  # a > c > f > b > e > d > a
P_STEP = 0.9  # it follows an arrow; else it writes one of the other names, all alike


def step_probabilities(arrows_N: Array, p_step: float = P_STEP) -> Array:
    """p(next name in a thought | name before): (N, N), a row for each name before."""
    N = len(arrows_N)
    p_NN = np.full((N, N), (1 - p_step) / (N - 1))
    p_NN[np.arange(N), arrows_N] = p_step
    return p_NN


def all_thoughts(arrows_N: Array, start: int, n_steps: int) -> tuple[list[tuple[int, ...]], Array]:
    """Every row of so many names that the model may write after a question, and ln p of each: (Z,)."""
    log_p_NN = np.log(step_probabilities(arrows_N))
    thoughts = list(itertools.product(range(len(arrows_N)), repeat=n_steps))
    steps = ([(start, *thought[:-1]), thought] for thought in thoughts)
    return thoughts, np.array([sum(log_p_NN[a, b] for a, b in zip(*pair, strict=True)) for pair in steps])


# ---- Steps ----


def way(arrows_N: Array, start: int, n_steps: int) -> list[int]:
    """The names to which 1, 2, ..., n_steps arrows lead from a name. The last one is the answer."""
    # solution:
    names, name = [], start
    for _ in range(n_steps):
        name = int(arrows_N[name])
        names.append(name)
    return names
    # end


def layers_needed(n_steps: int) -> int:
    """The smallest number of layers for this many arrows, if a layer can only join two ways that it finds ready.

    One arrow takes none: the text says where it leads.
    """
    # solution:
    return (n_steps - 1).bit_length()  # the logarithm to base 2, rounded up, without rounding errors
    # end


# ---- An answer is a sum over thoughts ----


def answer_log_p(log_p_thoughts_Z: Array, log_p_answer_Z: Array) -> float:
    """ln p(answer), where ln p of every thought is given, and ln p of the answer after each. -inf is impossible."""
    # solution:
    return float(np.logaddexp.reduce(log_p_thoughts_Z + log_p_answer_Z))
    # end


def sampled_log_p(log_p_answer_S: Array) -> float:
    """An estimate of ln p(answer) from thoughts that the model has drawn: ln p of the answer after each is given."""
    # solution:
    return float(np.logaddexp.reduce(log_p_answer_S) - math.log(len(log_p_answer_S)))
    # end


# ---- Writing many answers ----


def any_right(p_right_Q: Array, n: int) -> float:
    """The share of questions for which at least one of n answers is right, if they are drawn independently.

    p_right: of each question, the probability that an answer is right.
    """
    # solution:
    return float(np.mean(1 - (1 - p_right_Q) ** n))
    # end


def majority(p_A: Array, n: int) -> float:
    """The probability that answer 0 wins a vote among n answers which are drawn from p. A tie is decided by lot."""
    # solution:
    total = 0.0
    for answers in itertools.product(range(len(p_A)), repeat=n):
        votes = [answers.count(answer) for answer in range(len(p_A))]
        if votes[0] == max(votes):
            total += math.prod(p_A[answer] for answer in answers) / votes.count(max(votes))
    return float(total)
    # end


# ---- What a thought may cost ----


def best_length(p_right_K: Sequence[float], price: float) -> int:
    """The number of steps, from 0 to K - 1, with the largest p(right) - price x steps; of several, the smallest."""
    # solution:
    return int(np.argmax([p - price * k for k, p in enumerate(p_right_K)]))
    # end


def thinks(p_before: float, gain: float, length: int, price: float, beta: float) -> float:
    """How often the best policy thinks, if p(right) grows by `gain` with a thought of this length.

    It makes E[right - price x length] - beta KL(policy || before) largest. Before, it thought with p_before.
    """
    # solution:
    logit = math.log(p_before / (1 - p_before)) + (gain - price * length) / beta
    return 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))
    # end


def learned_lengths(p_right_K: Sequence[float], price: float, seed: int, n_updates: int = 1500) -> Array:
    """p(each length) of a policy that has learned from groups of 16 rewards, as GRPO does: (K,)."""
    rng, K, G = np.random.default_rng(seed), len(p_right_K), 16
    logits_K = np.zeros(K)
    for _ in range(n_updates):
        p_K = np.exp(logits_K - np.logaddexp.reduce(logits_K))
        length_G = rng.choice(K, size=G, p=p_K)
        reward_G = (rng.random(G) < np.asarray(p_right_K)[length_G]) - price * length_G
        advantage_G = reward_G - reward_G.mean()
        logits_K += 0.05 * (advantage_G[:, None] * (np.eye(K)[length_G] - p_K)).sum(axis=0)
    return np.exp(logits_K - np.logaddexp.reduce(logits_K))


# ---- Is the thought the cause? ----


def followed(arrows_QN: Array, thoughts_QK: Array, answers_Q: Array, place: int) -> tuple[float, float, float]:
    """The shares of answers that follow the thought as it is now, as it was, and neither.

    Each question asks where K + 1 arrows lead from name 0. Its thought was the names on the way, without the answer.
    Then the name at `place` (counted from 0) was changed, and the model went on: from there, if the thought is what it
    follows. Questions where both ways end at the same name say nothing: leave them out.
    """
    # solution:
    K = thoughts_QK.shape[1]
    counts = np.zeros(3)
    for arrows_N, thought_K, answer in zip(arrows_QN, thoughts_QK, answers_Q, strict=True):
        as_it_was = way(arrows_N, 0, K + 1)[-1]
        as_it_is = way(arrows_N, int(thought_K[place]), K - place)[-1]
        if as_it_is != as_it_was:
            counts[0 if answer == as_it_is else 1 if answer == as_it_was else 2] += 1
    now, before, neither = counts / counts.sum()
    return float(now), float(before), float(neither)
    # end

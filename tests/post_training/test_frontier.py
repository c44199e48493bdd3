"""The frontier of reward and KL divergence is that of the listed answers, nothing lies above it, and it is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from measurements.frontier import (
    RewardDistribution,
    best_reward,
    frontier,
    optimal_log_probabilities,
    optimum,
)
from measurements.post_training import Reached, draw_frontier, draw_over_optimization

logsumexp = np.logaddexp.reduce
rewards_of = arrays.arrays(float, 6, elements=st.floats(-2, 2).map(lambda x: round(x, 1)))
logits_of = arrays.arrays(float, 6, elements=st.floats(-3, 3))
COIN = RewardDistribution(np.array([0.0, 1.0]), np.array([0.75, 0.25]))


def log_softmax(logits_X):
    return logits_X - logsumexp(logits_X)


def reached(log_p_X, log_reference_X, rewards_X):
    p_X = np.exp(log_p_X)
    return p_X @ (log_p_X - log_reference_X), p_X @ rewards_X


@given(logits_of, rewards_of, st.floats(0.05, 20))
def test_the_rewards_alone_say_what_the_optimum_over_all_answers_gets(logits_X, rewards_X, beta):
    """Answers of equal reward may be put together: their probabilities are multiplied by the same number."""
    log_reference_X = log_softmax(logits_X)
    found = optimum([RewardDistribution(rewards_X, np.exp(log_reference_X))], beta)
    kl, reward = reached(optimal_log_probabilities(log_reference_X, rewards_X, beta), log_reference_X, rewards_X)
    assert (found.kl, found.reward) == pytest.approx((kl, reward), abs=1e-9)
    assert found.log_z == pytest.approx(logsumexp(log_reference_X + rewards_X / beta))
    assert found.kl == pytest.approx(found.reward / beta - found.log_z, abs=1e-9)


@given(logits_of, logits_of, rewards_of, st.floats(0.05, 20))
def test_no_policy_is_better_than_the_optimum_nor_above_the_frontier(logits_X, other_X, rewards_X, beta):
    log_reference_X, log_p_X = log_softmax(logits_X), log_softmax(other_X)
    prompts = [RewardDistribution(rewards_X, np.exp(log_reference_X))]
    kl, reward = reached(log_p_X, log_reference_X, rewards_X)
    assert reward - beta * kl <= beta * optimum(prompts, beta).log_z + 1e-9
    assert reward <= best_reward(prompts, kl) + 1e-3 * np.ptp(rewards_X) + 1e-9


@given(logits_of, st.floats(0.05, 20))
def test_an_answer_may_be_cut_where_its_reward_is_certain(logits_X, beta):
    """If all answers with the same beginning have the same reward, the optimum makes that as much likelier as each."""
    rewards_X, has_beginning_X = (
        np.array([0.0, 0.0, 0.5, 0.5, 1.0, 0.0]),
        np.array([False] * 2 + [True] * 2 + [False] * 2),
    )
    log_reference_X = log_softmax(logits_X)
    log_p_X = optimal_log_probabilities(log_reference_X, rewards_X, beta)
    of_beginning = logsumexp(log_p_X[has_beginning_X]) - logsumexp(log_reference_X[has_beginning_X])
    assert of_beginning == pytest.approx((log_p_X - log_reference_X)[2])


@settings(max_examples=20)
@given(logits_of, rewards_of)
def test_reward_and_divergence_rise_together_from_the_reference_to_the_best_answers(logits_X, rewards_X):
    p_X = np.exp(log_softmax(logits_X))
    points = frontier([RewardDistribution(rewards_X, p_X)])
    for name in ("kl", "reward"):
        assert (np.diff([getattr(point, name) for point in points]) >= -1e-9).all()
    best = rewards_X == rewards_X.max()
    assert points[0].reward == pytest.approx(p_X @ rewards_X, abs=1e-3)
    assert points[0].kl == pytest.approx(0, abs=1e-6)
    assert points[-1].reward == pytest.approx(rewards_X.max(), abs=1e-9)
    assert points[-1].kl == pytest.approx(-math.log(p_X[best].sum()), abs=1e-6)  # the price is not yet 0


def test_a_reward_of_0_or_1_by_hand():
    """Z = 3/4 + e^{1/β}/4; for β = 1 / ln 3, that is 3/2, and the right answer has the probability 1/2."""
    found = optimum([COIN], 1 / math.log(3))
    assert found.log_z == pytest.approx(math.log(1.5))
    assert found.reward == pytest.approx(0.5)
    assert found.kl == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert best_reward([COIN], found.kl) == pytest.approx(0.5)
    assert best_reward([COIN], 0.0) == pytest.approx(0.25, abs=1e-3)
    assert best_reward([COIN], 10.0) == pytest.approx(1)


def test_several_prompts_share_one_beta():
    """A divergence goes where it buys the most: an easy prompt is hardly changed."""
    easy = RewardDistribution(np.array([0.0, 1.0]), np.array([0.01, 0.99]))
    together, coin, other = (optimum(prompts, 0.5) for prompts in ([COIN, easy], [COIN], [easy]))
    assert together.kl == pytest.approx((coin.kl + other.kl) / 2)
    assert together.reward == pytest.approx((coin.reward + other.reward) / 2)
    assert other.kl < coin.kl / 10


def test_many_samples_are_nearly_the_distribution():
    samples = np.random.default_rng(0).choice([0.0, 0.5, 1.0], p=[0.6, 0.3, 0.1], size=20_000)
    found = RewardDistribution.of_samples(samples)
    assert found.rewards.tolist() == [0, 0.5, 1]
    np.testing.assert_allclose(found.probabilities, [0.6, 0.3, 0.1], atol=0.01)
    exact = RewardDistribution(np.array([0, 0.5, 1]), np.array([0.6, 0.3, 0.1]))
    assert optimum([found], 0.2).reward == pytest.approx(optimum([exact], 0.2).reward, abs=0.01)


def test_equal_rewards_leave_the_reference_as_it_is():
    points = frontier([RewardDistribution.of_samples([0.5] * 4)])
    assert {(point.reward, point.kl) for point in points} == {(0.5, 0.0)}


def test_methods_are_drawn_beside_the_frontier():
    methods = {"DPO": [Reached(0.1, 0.3), Reached(0.2, 0.4)], "GRPO": [Reached(0.3, 0.5)]}
    [axes] = draw_frontier("Reward and divergence", [COIN], methods).axes
    assert axes.get_xlim()[0] == 0
    drawn = [list(zip(*line.get_data(), strict=True)) for line in axes.lines]
    assert [(0.1, 0.3), (0.2, 0.4)] in drawn
    assert len(drawn[0]) == len(frontier([COIN]))


def test_each_run_has_its_proxy_on_the_left_and_the_truth_on_the_right():
    rows = [{"step": n, "reward": n / 10, "whole": 1 - n / 10, "obeys": 0.5} for n in range(1, 8)]
    proxy, truth = draw_over_optimization("Fooled", {"β = 0": rows, "β = 0.1": rows}).axes
    assert len(proxy.lines) == 4
    assert list(proxy.lines[0].get_ydata()) == [row["reward"] for row in rows]
    assert list(truth.lines[0].get_ydata()) == [(row["whole"] + row["obeys"]) / 2 for row in rows]

"""The best that reinforcement learning with a KL penalty can do, in closed form.

Of all policies, E_π[r] - β KL(π || π_ref) is largest for π*(x) = π_ref(x) exp(r(x)/β) / Z (equation P8; Ziebart et al.
2008, Rafailov et al. 2023). So the optimum for every β, and with it the highest reward for every KL divergence, follows
from how the rewards are distributed under the reference: no policy can lie above this frontier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SMALLEST_BETA, LARGEST_BETA = 1e-3, 1e4  # of the spread of the rewards: nearly the best answer alone, nearly π_ref


def optimal_log_probabilities(log_reference_X: ArrayLike, rewards_X: ArrayLike, beta: float) -> Array:
    """log π* of each of the finitely many answers x (equation P8)."""
    log_unscaled_X: Array = np.asarray(log_reference_X) + np.asarray(rewards_X) / beta
    return log_unscaled_X - np.logaddexp.reduce(log_unscaled_X)


@dataclass(frozen=True)
class RewardDistribution:
    """How likely the reference is to get each reward for an answer to one prompt. The probabilities sum to 1."""

    rewards: Array
    probabilities: Array

    @staticmethod
    def of_samples(rewards: Sequence[float] | Array) -> RewardDistribution:
        """Each sampled reward as likely as the others. What is rarer than one in so many answers is not seen."""
        values, counts = np.unique(np.asarray(rewards, dtype=np.float64), return_counts=True)
        return RewardDistribution(values, counts / counts.sum())


@dataclass(frozen=True)
class Optimum:
    """The best policy for this β: its mean reward, KL(π* || π_ref) in nats, and log Z; means over prompts."""

    beta: float
    reward: float
    kl: float
    log_z: float


def optimum(prompts: Sequence[RewardDistribution], beta: float) -> Optimum:
    """log Z = log E_ref[exp(r/β)], E*[r] = E_ref[r exp(r/β)] / Z, and KL = E*[r]/β - log Z, for each prompt."""
    mean_of_prompts = np.array([_of_prompt(prompt, beta) for prompt in prompts]).mean(axis=0)
    return Optimum(beta, *map(float, mean_of_prompts))


def frontier(prompts: Sequence[RewardDistribution], betas: Iterable[float] | None = None) -> list[Optimum]:
    """The optima for these β, or for enough of them to draw the whole curve: from the reference up to the best answers.

    Reward and KL rise as β falls.
    """
    if betas is None:
        betas = _spread(prompts) * np.geomspace(LARGEST_BETA, SMALLEST_BETA, 200)
    return [optimum(prompts, beta) for beta in betas]


def best_reward(prompts: Sequence[RewardDistribution], kl: float) -> float:
    """The highest mean reward that any policy within this KL divergence of the reference can get."""
    from scipy.optimize import brentq

    spread = _spread(prompts)
    most, least = (optimum(prompts, factor * spread) for factor in (SMALLEST_BETA, LARGEST_BETA))
    if not least.kl < kl < most.kl:
        return most.reward if kl >= most.kl else least.reward
    log_beta = brentq(lambda x: optimum(prompts, math.exp(x)).kl - kl, math.log(most.beta), math.log(least.beta))
    return optimum(prompts, math.exp(log_beta)).reward


def _of_prompt(prompt: RewardDistribution, beta: float) -> tuple[float, float, float]:
    """Reward, KL and log Z. The sums are in logarithms, for exp(r/β) overflows where β is small."""
    possible = prompt.probabilities > 0
    rewards, log_p = prompt.rewards[possible], np.log(prompt.probabilities[possible])
    log_optimum = optimal_log_probabilities(log_p, rewards, beta)
    p = np.exp(log_optimum)
    log_z = float(np.logaddexp.reduce(log_p + rewards / beta))
    return float(p @ rewards), max(0.0, float(p @ (log_optimum - log_p))), log_z


def _spread(prompts: Sequence[RewardDistribution]) -> float:
    """Between the highest and the lowest reward of any prompt; 1 if all are equal."""
    rewards = np.concatenate([prompt.rewards[prompt.probabilities > 0] for prompt in prompts])
    return float(np.ptp(rewards)) or 1.0

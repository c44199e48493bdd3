"""Losses of preference and policy optimization, number by number (equations P7 to P15)."""

import math


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def dpo_loss(chosen, rejected, reference_chosen, reference_rejected, beta):
    """The loss of one pair, from the log-probabilities of its answers (equation P9)."""
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    return -math.log(sigmoid(beta * margin))


def p_of_ranking(rewards):
    """From best to worst: the first is chosen among all, the next among the rest, and so on (equation P16)."""
    p = 1.0
    for k in range(len(rewards)):
        p *= math.exp(rewards[k]) / sum(math.exp(reward) for reward in rewards[k:])
    return p


def gradient_of_ranking(rewards):
    """The gradient of -log p: at each choice, the probability of each answer left, minus 1 for the chosen one."""
    gradient = [0.0] * len(rewards)
    for k in range(len(rewards)):
        total = sum(math.exp(reward) for reward in rewards[k:])
        for i in range(k, len(rewards)):
            gradient[i] += math.exp(rewards[i]) / total - (i == k)
    return gradient


def group_advantages(rewards):
    """Advantages of the answers to one prompt (equation P10)."""
    mean = sum(rewards) / len(rewards)
    variance = sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1)
    return [(reward - mean) / (math.sqrt(variance) + 1e-4) for reward in rewards]


def surrogate(log_p, old, advantage, clip):
    """The surrogate of one token (equation P11)."""
    ratio = math.exp(log_p) / math.exp(old)
    clipped = min(max(ratio, 1 - clip), 1 + clip)
    return -min(ratio * advantage, clipped * advantage)


def grpo(answers, beta, clip):
    """The mean over answers, each a list of tokens (log p, old, reference) and an advantage."""
    total = 0.0
    for tokens, advantage in answers:
        for log_p, old, reference in tokens:
            d = reference - log_p
            total += surrogate(log_p, old, advantage, clip) + beta * (math.exp(d) - d - 1)
    return total / len(answers)


def ppo(answers, clip, value_weight):
    """The mean over answers, each a list of tokens (log p, old, advantage, value, return)."""
    total = 0.0
    for tokens in answers:
        for log_p, old, advantage, value, aim in tokens:
            total += surrogate(log_p, old, advantage, clip) + value_weight * (value - aim) ** 2 / 2
    return total / len(answers)


def token_rewards(reward, old, reference, beta):
    """Rewards of the tokens of one answer (equation P12)."""
    rewards = [-beta * (p - r) for p, r in zip(old, reference, strict=True)]
    rewards[-1] += reward
    return rewards


def gae(rewards, values, discount, gae_lambda):
    """The sum of all later surprises, each discounted (equation P13): advantages and returns of one answer."""
    n = len(rewards)
    surprises = [rewards[t] + discount * (values[t + 1] if t + 1 < n else 0) - values[t] for t in range(n)]
    advantages = [sum((discount * gae_lambda) ** k * surprises[t + k] for k in range(n - t)) for t in range(n)]
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]

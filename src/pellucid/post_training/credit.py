"""Credit: which token deserves the reward? GRPO shares it out evenly, or asks the verifier; PPO asks a value head.

Shapes: P prompts, G answers to each, N = P G answers, T positions, V vocabulary.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import (
    STD_FLOOR,
    LogitsAndValues,
    RolloutBatch,
    gae,
    group_advantages,
    k1,
    token_rewards,
)

LEAST_VARIANCE = 1e-12  # where all returns are equal, there is nothing to foresee


class Parts(NamedTuple):
    """The two parts of a verifier's reward, each with the place of the token that settled it: (P, G, 2)."""

    rewards_PG2: Tensor  # noqa: N815
    settled_PG2: Tensor  # noqa: N815


# From answers with their rewards to the same with advantages and, if values are learned, returns.
Credit = Callable[[RolloutBatch, Parts], RolloutBatch]


def credit_by_group(answers: RolloutBatch, _: Parts, *, beta: float, by_spread: bool = True) -> RolloutBatch:
    """GRPO: an answer is compared with the others to its prompt (equation P10), all tokens of it alike.

    Where the KL divergence is in the reward, a nat of log π/ref costs `beta`.
    """
    costs_PG = beta * k1(answers.old_PGT, answers.reference_PGT).sum(dim=-1)
    advantages_PG1 = group_advantages(answers.rewards_PG - costs_PG, by_spread)[..., None]
    return answers._replace(advantages_PGT=advantages_PG1.expand_as(answers.old_PGT).contiguous())


def credit_by_settling(answers: RolloutBatch, parts: Parts, *, decay: float, by_spread: bool = True) -> RolloutBatch:
    """GRPO, with each part of the reward for the token that settled it, and decay^k of it for the k-th before.

    What comes after is blamed for nothing: the mean of its gradient is zero anyway (the reward can no longer change),
    so leaving it out takes away noise alone. What comes long before had little to do with it; to leave that out too is
    a bias, which decay = 1 avoids.
    """
    # That of the whole reward, if the parts are independent. Equal rewards may be made of different parts.
    spread_P11 = parts.rewards_PG2.var(dim=1, keepdim=True).sum(dim=2, keepdim=True).sqrt() + STD_FLOOR
    advantages_PG2 = parts.rewards_PG2 - parts.rewards_PG2.mean(dim=1, keepdim=True)
    advantages_PG2 = advantages_PG2 / spread_P11 if by_spread else advantages_PG2
    places_T = torch.arange(answers.targets_PGT.size(-1))
    before_PG2T = parts.settled_PG2[..., None] - places_T
    weights_PG2T = torch.where(before_PG2T >= 0, decay ** before_PG2T.clamp(min=0), 0.0)
    advantages_PGT = (advantages_PG2[..., None] * weights_PG2T).sum(dim=2)
    return answers._replace(advantages_PGT=advantages_PGT * (answers.targets_PGT != IGNORE_INDEX))


def credit_by_values(
    answers: RolloutBatch,
    parts: Parts,
    *,
    logits_and_values: LogitsAndValues,
    beta: float,
    discount: float,
    gae_lambda: float,
    reward_at: Literal["end", "settled"] = "end",
) -> RolloutBatch:
    """PPO: a token is compared with what the value head expected before it (equations P12 and P13).

    The reward comes with the last token, or what an answer misses of it is taken off where it was lost.
    """
    is_answer_PGT = answers.targets_PGT != IGNORE_INDEX
    with torch.no_grad():
        values_NT = logits_and_values(answers.inputs_PGT.flatten(0, 1))[1]
    rewards_PG = answers.rewards_PG if reward_at == "end" else torch.zeros_like(answers.rewards_PG)
    rewards_PGT = token_rewards(rewards_PG, answers.old_PGT, answers.reference_PGT, is_answer_PGT, beta)
    if reward_at == "settled":
        rewards_PGT = rewards_PGT - lost_at(parts, is_answer_PGT.size(-1))
    values_PGT = values_NT.float().cpu().view_as(rewards_PGT)
    advantages_PGT, returns_PGT = gae(rewards_PGT, values_PGT, is_answer_PGT, discount=discount, gae_lambda=gae_lambda)
    return answers._replace(advantages_PGT=advantages_PGT, returns_PGT=returns_PGT)


def lost_at(parts: Parts, n_tokens: int) -> Tensor:
    """How much of the highest reward, 1, was lost with each token: (P, G, T).

    An answer's reward is 1 less their sum, so the optimum is the same (equation P8): a constant cancels in it.
    """
    lost_PG2 = 1 / parts.rewards_PG2.size(-1) - parts.rewards_PG2
    lost_PGT = torch.zeros(*lost_PG2.shape[:2], n_tokens)
    return lost_PGT.scatter_add(-1, parts.settled_PG2, lost_PG2)


def explained_variance(answers: RolloutBatch) -> Tensor:
    """1 - Var(return - value) / Var(return) over all tokens: 1 if the value head foresaw the returns, 0 if nothing.

    An advantage is the return less the value that the head gave when the answer was written.
    """
    is_answer_PGT = answers.targets_PGT != IGNORE_INDEX
    returns_M, surprises_M = answers.returns_PGT[is_answer_PGT], answers.advantages_PGT[is_answer_PGT]
    return 1 - surprises_M.var(correction=0) / returns_M.var(correction=0).clamp(min=LEAST_VARIANCE)

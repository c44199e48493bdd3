"""Learning from answers of which one was preferred to the other, or that were ranked: reward models and DPO.

Both assume that an answer of reward r is preferred to one of reward s with probability σ(r - s) (Bradley and Terry
1952). A reward model computes the reward by a scalar head; DPO takes it from the policy itself.

Shapes: P pairs or rankings, K answers of each, from best to worst (2 in a pair: the chosen, then the rejected one),
N answers, T positions, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.objective import Forward, Loss
from pellucid.objectives.policy import log_probabilities


class PairBatch(NamedTuple):
    """Pairs or rankings of answers to the same prompt. Their last token is an input too: the reward is read there.

    targets: the tokens of the answers; IGNORE_INDEX for prompts and padding.
    reference: log-probability of each answer, summed over its tokens, under the model that training started from.
    """

    inputs_PKT: Tensor  # noqa: N815
    targets_PKT: Tensor  # noqa: N815
    reference_PK: Tensor  # noqa: N815

    @property
    def n_losses(self) -> int:
        """The number of pairs or rankings."""
        return self.inputs_PKT.size(0)

    @property
    def n_tokens(self) -> int:
        return self.inputs_PKT.numel()

    def part(self, rows: slice) -> PairBatch:
        return PairBatch(*(tensor[rows] for tensor in self))

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def pairwise_loss(chosen_P: Tensor, rejected_P: Tensor) -> Tensor:
    """-log σ(r_chosen - r_rejected): the negative log-likelihood of a preference (equation P7)."""
    return -F.logsigmoid(chosen_P - rejected_P)


def ranking_loss(rewards_PK: Tensor) -> Tensor:
    """The negative log-likelihood of a ranking from best to worst (equation P16; Luce 1959, Plackett 1975).

    The best is chosen by a softmax of all rewards, then the second best by one of those left: e^r over the sum of e^s
    of this and all worse answers, which is σ(r - ln of that sum without r). With two answers it is the pairwise loss.
    """
    worse = (rewards_PK[:, k:].logsumexp(dim=1) for k in range(1, rewards_PK.size(1)))
    return torch.stack([pairwise_loss(*both) for both in zip(rewards_PK.T, worse, strict=False)]).sum(dim=0)


def implicit_rewards(answer_N: Tensor, reference_N: Tensor, beta: float) -> Tensor:
    """β log π(answer) / π_ref(answer): the reward for which this policy is optimal, up to a constant per prompt.

    This solves equation P8 for the reward; the constant, β log Z, is the same for both answers of a pair.
    """
    return beta * (answer_N - reference_N)


def dpo_loss(answer_PK: Tensor, reference_PK: Tensor, beta: float) -> Tensor:
    """The loss of the implicit rewards (equation P9; Rafailov et al. 2023). log 2 for a pair where π is the reference.

    Both are log-probabilities of whole answers, summed over tokens.
    """
    return ranking_loss(implicit_rewards(answer_PK, reference_PK, beta))


def at_last_token(values_NT: Tensor, targets_NT: Tensor) -> Tensor:
    """The value at each answer's last token: (N,). The target at the position before is that token."""
    places_T = torch.arange(1, targets_NT.size(1) + 1, device=targets_NT.device)
    last_N = (places_T * (targets_NT != IGNORE_INDEX)).amax(dim=1)
    return values_NT.gather(1, last_N[:, None])[:, 0]


def reward_model(scores: Forward, batch: PairBatch) -> Loss:
    """Loss of a reward model, which shall score the chosen answer higher. `scores`: tokens (N, T) to numbers (N, T)."""
    targets_NT = batch.targets_PKT.flatten(0, 1)
    rewards_N = at_last_token(scores(batch.inputs_PKT.flatten(0, 1)), targets_NT)
    rewards_PK = rewards_N.float().view(batch.reference_PK.shape)
    return _loss_of_rankings(ranking_loss(rewards_PK), rewards_PK)


def dpo(forward: Forward, batch: PairBatch, *, beta: float) -> Loss:
    """Loss of direct preference optimization: prefer the better answer by more than the reference does (`dpo_loss`)."""
    logits_NTV = forward(batch.inputs_PKT.flatten(0, 1))
    answer_N = log_probabilities(logits_NTV, batch.targets_PKT.flatten(0, 1)).sum(dim=1)
    answer_PK = answer_N.view(batch.reference_PK.shape)
    losses_P = dpo_loss(answer_PK, batch.reference_PK, beta)
    return _loss_of_rankings(losses_P, implicit_rewards(answer_PK, batch.reference_PK, beta))


def _loss_of_rankings(losses_P: Tensor, rewards_PK: Tensor) -> Loss:
    """The summed loss. Figures: how often the better of two answers has the higher reward (a tie counts half), and the
    rewards of the best and of the worst answer.
    """
    rewards_PK = rewards_PK.detach()
    chosen_P, rejected_P, K = rewards_PK[:, 0], rewards_PK[:, -1], rewards_PK.size(1)
    better, worse = torch.triu_indices(K, K, offset=1, device=rewards_PK.device)
    figures = {
        "accuracy": (torch.sign(rewards_PK[:, better] - rewards_PK[:, worse]) / 2 + 0.5).mean(dim=1).sum(),
        "margin": (chosen_P - rejected_P).sum(),
        "chosen_reward": chosen_P.sum(),
        "rejected_reward": rejected_P.sum(),
    }
    return Loss(losses_P.sum(), len(losses_P), figures=figures)

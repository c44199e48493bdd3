"""Learning from pairs of answers of which one was preferred: reward models and DPO.

Both assume that an answer of reward r is preferred to one of reward s with probability σ(r - s) (Bradley and Terry
1952). A reward model computes the reward by a scalar head; DPO takes it from the policy itself.

Shapes: P pairs, 2 answers of a pair (the chosen, then the rejected one), N answers, T positions, V vocabulary.
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
    """Pairs of answers to the same prompt. The last token of an answer is an input too: the reward is read there.

    targets: the tokens of the answers; IGNORE_INDEX for prompts and padding.
    reference: log-probability of each answer, summed over its tokens, under the model that training started from.
    """

    inputs_P2T: Tensor  # noqa: N815
    targets_P2T: Tensor  # noqa: N815
    reference_P2: Tensor  # noqa: N815

    @property
    def n_losses(self) -> int:
        """The number of pairs."""
        return self.inputs_P2T.size(0)

    @property
    def n_tokens(self) -> int:
        return self.inputs_P2T.numel()

    def part(self, rows: slice) -> PairBatch:
        return PairBatch(*(tensor[rows] for tensor in self))

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def pairwise_loss(chosen_P: Tensor, rejected_P: Tensor) -> Tensor:
    """-log σ(r_chosen - r_rejected): the negative log-likelihood of a preference (equation P7)."""
    return -F.logsigmoid(chosen_P - rejected_P)


def implicit_rewards(answer_N: Tensor, reference_N: Tensor, beta: float) -> Tensor:
    """β log π(answer) / π_ref(answer): the reward for which this policy is optimal, up to a constant per prompt.

    This solves equation P8 for the reward; the constant, β log Z, is the same for both answers of a pair.
    """
    return beta * (answer_N - reference_N)


def dpo_loss(
    chosen_P: Tensor, rejected_P: Tensor, reference_chosen_P: Tensor, reference_rejected_P: Tensor, beta: float
) -> Tensor:
    """The pairwise loss of the implicit rewards (equation P9; Rafailov et al. 2023). log 2 where π is the reference.

    All four are log-probabilities of whole answers, summed over tokens.
    """
    return pairwise_loss(
        implicit_rewards(chosen_P, reference_chosen_P, beta), implicit_rewards(rejected_P, reference_rejected_P, beta)
    )


def at_last_token(values_NT: Tensor, targets_NT: Tensor) -> Tensor:
    """The value at each answer's last token: (N,). The target at the position before is that token."""
    places_T = torch.arange(1, targets_NT.size(1) + 1, device=targets_NT.device)
    last_N = (places_T * (targets_NT != IGNORE_INDEX)).amax(dim=1)
    return values_NT.gather(1, last_N[:, None])[:, 0]


def reward_model(scores: Forward, batch: PairBatch) -> Loss:
    """Loss of a reward model, which shall score the chosen answer higher. `scores`: tokens (N, T) to numbers (N, T)."""
    targets_NT = batch.targets_P2T.flatten(0, 1)
    rewards_N = at_last_token(scores(batch.inputs_P2T.flatten(0, 1)), targets_NT)
    rewards_P2 = rewards_N.float().view(-1, 2)
    return _loss_of_pairs(pairwise_loss(*rewards_P2.unbind(dim=1)), rewards_P2)


def dpo(forward: Forward, batch: PairBatch, *, beta: float) -> Loss:
    """Loss of direct preference optimization: prefer the chosen answer by more than the reference does (`dpo_loss`)."""
    logits_NTV = forward(batch.inputs_P2T.flatten(0, 1))
    answer_P2 = log_probabilities(logits_NTV, batch.targets_P2T.flatten(0, 1)).sum(dim=1).view(-1, 2)
    losses_P = dpo_loss(answer_P2[:, 0], answer_P2[:, 1], batch.reference_P2[:, 0], batch.reference_P2[:, 1], beta)
    return _loss_of_pairs(losses_P, implicit_rewards(answer_P2, batch.reference_P2, beta))


def _loss_of_pairs(losses_P: Tensor, rewards_P2: Tensor) -> Loss:
    """The summed loss. Figures: how often the chosen answer has the higher reward (a tie counts half), by how much."""
    chosen_P, rejected_P = rewards_P2.detach().unbind(dim=1)
    margin_P = chosen_P - rejected_P
    figures = {
        "accuracy": (torch.sign(margin_P) / 2 + 0.5).sum(),
        "margin": margin_P.sum(),
        "chosen_reward": chosen_P.sum(),
        "rejected_reward": rejected_P.sum(),
    }
    return Loss(losses_P.sum(), len(losses_P), figures=figures)

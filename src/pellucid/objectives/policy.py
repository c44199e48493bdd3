"""Learning from rewards, by GRPO and PPO: the model answers, is rewarded, and makes rewarded answers likelier.

The losses are means over answers of sums over their tokens: so, without clipping, their gradient is that of the mean
reward (the policy gradient theorem, Sutton et al. 2000), a KL divergence is that of whole answers, in nats, and an
update may be divided into any parts. GRPO was published with the mean over the tokens of each answer, which favours
short right answers and long wrong ones (Liu et al. 2025).

Shapes: P prompts, G answers to each, T positions, V vocabulary; "..." for any axes before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.objective import Forward, Loss

LogitsAndValues = Callable[[Tensor], tuple[Tensor, Tensor]]

STD_FLOOR = 1e-4  # added to the spread of a group's rewards: equal rewards give no advantage, and no division by zero


class RolloutBatch(NamedTuple):
    """Answers that the model wrote itself, G to each prompt, with their rewards and log-probabilities.

    targets: the tokens of the answers; IGNORE_INDEX for prompts, padding, and what a tool wrote.
    old, reference: log-probability of each target under the model that wrote it, and under the one that training
    started from; 0 where there is no target.   advantages: of each token, or of each answer (the last axis is 1).
    rewards: of each answer.   returns: the targets of the value head; only PPO uses them.
    """

    inputs_PGT: Tensor  # noqa: N815
    targets_PGT: Tensor  # noqa: N815
    old_PGT: Tensor  # noqa: N815
    reference_PGT: Tensor  # noqa: N815
    advantages_PGT: Tensor  # noqa: N815
    rewards_PG: Tensor  # noqa: N815
    returns_PGT: Tensor  # noqa: N815

    @property
    def n_losses(self) -> int:
        """The number of answers."""
        return self.rewards_PG.numel()

    @property
    def n_tokens(self) -> int:
        return self.inputs_PGT.numel()

    def part(self, rows: slice) -> RolloutBatch:
        """The batch of these prompts alone, each with all of its answers."""
        return RolloutBatch(*(tensor[rows] for tensor in self))

    def to(self, device: torch.device) -> RolloutBatch:
        return RolloutBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def log_probabilities(logits_NTV: Tensor, targets_NT: Tensor, temperature: float = 1.0) -> Tensor:
    """log p(target) at each position and at this temperature, in float32 or wider: (N, T); 0 where no target is."""
    return _of_targets(log_distributions(logits_NTV, temperature), targets_NT)


def log_distributions(logits_NTV: Tensor, temperature: float = 1.0) -> Tensor:
    """log p of every token at each position, at this temperature, in float32 or wider: (N, T, V)."""
    wide_NTV = logits_NTV.to(torch.promote_types(logits_NTV.dtype, torch.float32))
    return F.log_softmax(wide_NTV if temperature == 1 else wide_NTV / temperature, dim=-1)


def entropy(log_p_NTV: Tensor) -> Tensor:
    """-Σ p log p of the next token at each position, in nats: (N, T)."""
    # Row by row: e^log p of all rows would not fit into a CPU's caches.
    return torch.stack([-(log_p_TV.exp() * log_p_TV).sum(dim=-1) for log_p_TV in log_p_NTV])


def _of_targets(log_p_NTV: Tensor, targets_NT: Tensor) -> Tensor:
    log_p_MV, targets_M = log_p_NTV.flatten(0, 1), targets_NT.flatten()
    return -F.nll_loss(log_p_MV, targets_M, ignore_index=IGNORE_INDEX, reduction="none").view_as(targets_NT)


def k1(log_p: Tensor, log_reference: Tensor) -> Tensor:
    """log p - log ref of a sample of p: its mean is KL(p || ref) (equation P15; Schulman 2020).

    As a loss it is useless: the mean of its gradient, ∇ log p, is zero. It belongs in the reward.
    """
    return log_p - log_reference


def k2(log_p: Tensor, log_reference: Tensor) -> Tensor:
    """(log p - log ref)² / 2: biased as an estimate, but its gradient has the mean ∇ KL(p || ref)."""
    return (log_p - log_reference) ** 2 / 2


def k3(log_p: Tensor, log_reference: Tensor) -> Tensor:
    """e^d - d - 1 for d = log ref - log p: unbiased, never negative and less noisy than k1.

    Its gradient has the mean ∇ KL(ref || p), the reverse divergence: with it GRPO's loss stays near the reference.
    """
    d = log_reference - log_p
    return torch.expm1(d) - d


def group_advantages(rewards_PG: Tensor, by_spread: bool = True) -> Tensor:
    """The advantage of each answer over the others to its prompt: (R - mean) / (std + 1e-4) (equation P10).

    The standard deviation is the unbiased one (Shao et al. 2024). Equal rewards give no advantage. Not divided by it,
    advantages lead to the largest mean reward (Liu et al. 2025).
    """
    centered_PG = rewards_PG - rewards_PG.mean(dim=1, keepdim=True)
    return centered_PG / (rewards_PG.std(dim=1, keepdim=True) + STD_FLOOR) if by_spread else centered_PG


def token_rewards(rewards: Tensor, old_T: Tensor, reference_T: Tensor, is_answer_T: Tensor, beta: float) -> Tensor:
    """-β (log π - log ref) for each token of an answer, and the answer's reward with its last one (equation P12).

    Their sum over an answer is R - β log π/ref, which RLHF maximises (equation P8).
    rewards (...); the others (..., T).
    """
    is_last_T = is_answer_T & ~F.pad(is_answer_T[..., 1:], (0, 1))
    return is_last_T * rewards[..., None] - beta * k1(old_T, reference_T) * is_answer_T


def gae(
    rewards_T: Tensor, values_T: Tensor, is_answer_T: Tensor, *, discount: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation (equation P13; Schulman et al. 2016): advantages and returns, (..., T) as well.

    δ_t = r_t + γ V_{t+1} - V_t says how much better than expected token t was. The advantage is Σ_k (γλ)^k δ_{t+k}, and
    the return is the advantage plus V_t. V is 0 after the last token of an answer; all else is 0 outside of answers.
    """
    values_T = values_T * is_answer_T
    next_values_T = F.pad(values_T[..., 1:], (0, 1))
    delta_T = (rewards_T + discount * next_values_T - values_T) * is_answer_T
    advantage, advantages = torch.zeros_like(delta_T[..., 0]), []
    for t in reversed(range(delta_T.size(-1))):
        advantage = (delta_T[..., t] + discount * gae_lambda * advantage) * is_answer_T[..., t]
        advantages.append(advantage)
    advantages_T = torch.stack(advantages[::-1], dim=-1)
    return advantages_T, advantages_T + values_T


def clipped_surrogate(log_p: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """-min(ρA, clip(ρ, 1 ± ε) A), ρ = p / p_old (equation P11; Schulman et al. 2017).

    The gradient is zero once a good token is likelier by a factor of 1 + ε, or a bad one less likely by 1 - ε.
    """
    ratio = (log_p - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def is_clipped(log_p: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Whether clipping has set a token's gradient to zero."""
    ratio = (log_p - old).exp()
    return ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """(V - return)² / 2: the value head learns the reward to expect from each token on (equation P14)."""
    return (values - returns) ** 2 / 2


def grpo(forward: Forward, batch: RolloutBatch, *, beta: float, clip: float, temperature: float = 1.0) -> Loss:
    """Group relative policy optimization: surrogate and β k3, summed over each answer (equation P11).

    With the KL divergence in the rewards instead (`token_rewards`), beta is 0, and equation P8 gives the optimum.
    """
    logits_NTV = forward(batch.inputs_PGT.flatten(0, 1))
    losses_PGT, figures, log_p_PGT, is_answer_PGT = _surrogate(logits_NTV, batch, clip, temperature)
    if beta:
        losses_PGT = losses_PGT + beta * k3(log_p_PGT, batch.reference_PGT)
    return Loss((losses_PGT * is_answer_PGT).sum(), batch.n_losses, figures=figures)


def ppo(
    forward: LogitsAndValues, batch: RolloutBatch, *, clip: float, value_weight: float, temperature: float = 1.0
) -> Loss:
    """Proximal policy optimization: surrogate and value loss, summed over each answer (equations P12 to P14).

    `forward` gives logits (N, T, V) and values (N, T). The KL divergence is part of the rewards.
    """
    logits_NTV, values_NT = forward(batch.inputs_PGT.flatten(0, 1))
    losses_PGT, figures, _, is_answer_PGT = _surrogate(logits_NTV, batch, clip, temperature)
    value_losses_PGT = value_loss(values_NT.float().view_as(batch.returns_PGT), batch.returns_PGT) * is_answer_PGT
    total = (losses_PGT * is_answer_PGT).sum() + value_weight * value_losses_PGT.sum()
    figures["value_loss"] = _mean_of_answers(value_losses_PGT.detach(), is_answer_PGT)
    return Loss(total, batch.n_losses, figures=figures)


def _surrogate(
    logits_NTV: Tensor, batch: RolloutBatch, clip: float, temperature: float
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """The loss of each token, the figures, log p of each target, and where the answers are.

    The figures are sums over answers: reward; KL divergence from the reference, by k3, in nats; the clipped share and
    the mean entropy of each answer's tokens; and the number of tokens.
    """
    targets_NT = batch.targets_PGT.flatten(0, 1)
    log_p_NTV = log_distributions(logits_NTV, temperature)
    log_p_PGT = _of_targets(log_p_NTV, targets_NT).view_as(batch.old_PGT)
    is_answer_PGT = batch.targets_PGT != IGNORE_INDEX
    losses_PGT = clipped_surrogate(log_p_PGT, batch.old_PGT, batch.advantages_PGT, clip)
    clipped_PGT = is_clipped(log_p_PGT.detach(), batch.old_PGT, batch.advantages_PGT, clip)
    entropy_PGT = entropy(log_p_NTV.detach()).view_as(log_p_PGT)
    figures = {
        "reward": batch.rewards_PG.sum(),
        "kl": (k3(log_p_PGT.detach(), batch.reference_PGT) * is_answer_PGT).sum(),
        "clip_fraction": _mean_of_answers(clipped_PGT, is_answer_PGT),
        "entropy": _mean_of_answers(entropy_PGT, is_answer_PGT),
        "answer_tokens": is_answer_PGT.sum().to(log_p_PGT.dtype),
    }
    return losses_PGT, figures, log_p_PGT, is_answer_PGT


def _mean_of_answers(x_PGT: Tensor, is_answer_PGT: Tensor) -> Tensor:
    """The mean over the tokens of each answer, summed over answers."""
    return ((x_PGT * is_answer_PGT).sum(dim=-1) / is_answer_PGT.sum(dim=-1).clamp(min=1)).sum()

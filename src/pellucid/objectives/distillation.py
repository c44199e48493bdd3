"""Distillation: learning the whole distribution of the next token, instead of the one token that was drawn from it.

The teacher is the truth, which has few possible tokens at each place, or a model, which gives all of them some
probability. Either way the loss is a divergence, whose floor is 0.

Shapes: B rows, T positions, K possible tokens, N places to learn from, V vocabulary.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.objectives.objective import Forward, Loss
from pellucid.objectives.policy import log_distributions

Direction = Literal["forward", "reverse"]


class SoftBatch(NamedTuple):
    """Inputs and targets as in `Batch`, and the true distribution of each target.

    ids, p: the tokens that are possible, and their probabilities; p is 0 where a place has fewer than K.
    """

    inputs_BT: Tensor  # noqa: N815
    targets_BT: Tensor  # noqa: N815
    ids_BTK: Tensor  # noqa: N815
    p_BTK: Tensor  # noqa: N815

    @property
    def n_losses(self) -> int:
        """The number of targets."""
        return int((self.targets_BT != IGNORE_INDEX).sum())

    @property
    def n_tokens(self) -> int:
        return self.inputs_BT.numel()

    def part(self, rows: slice) -> SoftBatch:
        return SoftBatch(*(tensor[rows] for tensor in self))

    def to(self, device: torch.device) -> SoftBatch:
        return SoftBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def divergence(p_NK: Tensor, log_q_NK: Tensor, direction: Direction = "forward") -> Tensor:
    """KL(p || q) or KL(q || p) of each place, in nats: (N,). Both are 0 where q = p, and nowhere else (equation 60).

    q may give something to impossible tokens, for which p is 0. With m, what it gives to the possible ones, and
    r = q / m, KL(p || q) = -ln m + KL(p || r). KL(q || p) would be infinite; so "reverse" turns round only the second
    part: -ln m + KL(r || p). Of a teacher that gives every token some probability, m is 1, and that is KL(q || p).
    """
    if direction == "forward":
        return (torch.xlogy(p_NK, p_NK) - p_NK * log_q_NK).sum(dim=-1)
    is_impossible_NK = p_NK == 0
    log_q_NK = log_q_NK.masked_fill(is_impossible_NK, -torch.inf)
    log_m_N1 = log_q_NK.logsumexp(dim=-1, keepdim=True)
    log_r_NK = log_q_NK - log_m_N1
    log_ratio_NK = (log_r_NK - p_NK.log()).masked_fill(is_impossible_NK, 0.0)
    return (log_r_NK.exp() * log_ratio_NK).sum(dim=-1) - log_m_N1[:, 0]


def from_truth(forward: Forward, batch: SoftBatch, *, direction: Direction = "forward") -> Loss:
    """The divergence from the truth, summed over the targets (equation 60)."""
    is_target_BT = batch.targets_BT != IGNORE_INDEX
    log_q_NV = log_distributions(forward(batch.inputs_BT)[is_target_BT])
    log_q_NK = log_q_NV.gather(-1, batch.ids_BTK[is_target_BT])
    return Loss(divergence(batch.p_BTK[is_target_BT], log_q_NK, direction).sum(), batch.n_losses)


def from_model(
    forward: Forward, batch: Batch, *, teacher: Forward, temperature: float = 1.0, direction: Direction = "forward"
) -> Loss:
    """The divergence from a model, both at this temperature, times its square (Hinton et al. 2015, section 2).

    The gradient of a softened divergence shrinks with the square of the temperature: so it keeps its size.
    """
    is_target_BT = batch.targets_BT != IGNORE_INDEX
    with torch.no_grad():
        p_NV = log_distributions(teacher(batch.inputs_BT)[is_target_BT], temperature).exp()
    log_q_NV = log_distributions(forward(batch.inputs_BT)[is_target_BT], temperature)
    return Loss(temperature**2 * divergence(p_NV, log_q_NV, direction).sum(), batch.n_losses)

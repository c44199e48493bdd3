"""One update of the weights: forward, backward, clip, step. The loop around it lives in session.py.

Shapes: B rows of a micro-batch, T positions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.errors import NonFiniteLossError
from pellucid.runtime.precision import Precision
from pellucid.training.objectives import next_token_nats
from pellucid.training.optimizers import set_learning_rate
from pellucid.training.schedules import Schedule

GetBatch = Callable[[int], Batch]
Objective = Callable[[Tensor, Tensor], Tensor]  # logits and targets to the loss, summed over the targets


@dataclass(frozen=True)
class Update:
    """What one update reports: mean loss (nats per token), the gradient's norm before clipping, tokens read, time."""

    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float


def not_finite(step: int, what: str) -> NonFiniteLossError:
    """The error for NaN or infinity at a step, with what usually helps."""
    return NonFiniteLossError(f"step {step}", what, "lower optimizer.lr or lengthen schedule.warmup_steps")


class Trainer:
    """Weights, optimizers and the rule that moves them from step to step.

    `get_batch(i)` gives micro-batch i of the whole run; update s uses the micro-batches k·s to k·s + k − 1, where k is
    `gradient_accumulation_steps`. With the step as the only counter, a run resumes by setting `step`.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[[Tensor], Tensor],
        optimizers: Sequence[Optimizer],
        schedule: Schedule,
        get_batch: GetBatch,
        precision: Precision,
        *,
        objective: Objective = next_token_nats,
        gradient_accumulation_steps: int = 1,
        max_gradient_norm: float | None = None,
    ) -> None:
        self.model, self.forward, self.objective = model, forward, objective
        self.optimizers, self.schedule = optimizers, schedule
        self.get_batch, self.precision = get_batch, precision
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_gradient_norm = math.inf if max_gradient_norm is None else max_gradient_norm
        self.scaler = precision.grad_scaler()
        self.step = 0

    def update(self) -> Update:
        """Takes one optimizer step on the mean loss over all targets of k micro-batches (equation 16).

        Raises NonFiniteLossError before the weights change if the loss or the gradient is NaN or infinite.
        """
        started = time.perf_counter()
        k = self.gradient_accumulation_steps
        batches = [self.get_batch(i) for i in range(self.step * k, (self.step + 1) * k)]
        n_targets = sum(int((batch.targets_BT != IGNORE_INDEX).sum()) for batch in batches)
        set_learning_rate(self.optimizers, self.schedule(self.step))
        shares = [self._backward(batch, n_targets) for batch in batches]
        # The only moment at which a GPU is waited for: all figures of the update come over at once.
        *losses, gradient_norm = torch.stack([*shares, self._clip_gradients()]).tolist()
        self._require_finite(losses, gradient_norm)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        self.step += 1
        learning_rate = self.optimizers[0].param_groups[0]["lr"]
        n_tokens = sum(batch.inputs_BT.numel() for batch in batches)
        seconds = time.perf_counter() - started
        return Update(math.fsum(losses), gradient_norm, learning_rate, n_tokens, seconds)

    def _backward(self, batch: Batch, n_targets: int) -> Tensor:
        """Adds this micro-batch's share of the gradient of the mean loss, and returns its share of the loss."""
        device = self.precision.device
        inputs_BT, targets_BT = (tensor.to(device, non_blocking=True) for tensor in batch)
        with self.precision.autocast():
            logits_BTV = self.forward(inputs_BT)
        loss = self.objective(logits_BTV, targets_BT) / max(1, n_targets)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _clip_gradients(self) -> Tensor:
        """Scales a gradient longer than `max_gradient_norm` down to it (Pascanu et al. 2013); returns its norm."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.max_gradient_norm)

    def _require_finite(self, losses: Sequence[float], gradient_norm: float) -> None:
        # Under fp16 a gradient may overflow: then the scaler skips the update and lowers its scale.
        culprits = {f"loss of micro-batch {i + 1} of {len(losses)}": loss for i, loss in enumerate(losses)}
        if not self.scaler.is_enabled():
            culprits["gradient"] = gradient_norm
        for name, value in culprits.items():
            if not math.isfinite(value):
                raise not_finite(self.step + 1, f"the {name} is not finite ({value:g}): no update was made")

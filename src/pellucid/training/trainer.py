"""One update of the weights: forward, backward, clip, step. The loop around it lives in session.py.

Shapes: B rows, T positions.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.errors import NonFiniteError
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.next_token import next_token
from pellucid.objectives.objective import AnyBatch, Objective
from pellucid.objectives.task import GetBatch
from pellucid.runtime.distributed import ALONE, World, full_tensor, share_of_update
from pellucid.runtime.precision import Precision
from pellucid.training.forward import agree_on_products
from pellucid.training.optimizers import set_learning_rate
from pellucid.training.schedules import Schedule


@dataclass(frozen=True)
class Update:
    """The results of one update: mean loss (nats per token), the gradient's norm before clipping, tokens read, time.

    figures: further means that the objective reports.
    """

    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)


def not_finite(step: int, what: str) -> NonFiniteError:
    """The error for NaN or infinity at a step, with what usually helps."""
    return NonFiniteError(f"step {step}", what, "lower optimizer.lr or lengthen schedule.warmup_steps")


class Trainer:
    """Weights, optimizers and schedule, and the update that moves the weights from step to step.

    `get_batch(i, rows)` gives these rows of micro-batch i of the whole run; update s uses the micro-batches k·s to
    k·s + k − 1, where k is `gradient_accumulation_steps`, or this rank's share of them. The step is the only counter,
    so a run resumes by setting `step`. If the model `is_sharded`, the backward pass sums gradients over all ranks.
    """

    def __init__(
        self,
        model: LanguageModel,
        forward: Callable[[Tensor], Tensor],
        optimizers: Sequence[Optimizer],
        schedule: Schedule,
        get_batch: GetBatch,
        precision: Precision,
        *,
        objective: Objective = next_token,
        batch_size: int = 1,
        gradient_accumulation_steps: int = 1,
        max_gradient_norm: float | None = None,
        seed: int = 0,
        world: World = ALONE,
        is_sharded: bool = False,
    ) -> None:
        self.model, self.forward, self.objective = model, forward, objective
        self.optimizers, self.schedule = optimizers, schedule
        self.get_batch, self.precision = get_batch, precision
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.seed, self.world, self.is_sharded = seed, world, is_sharded
        # (micro-batch, rows of it) for each that this rank reads; alone: every micro-batch, all rows.
        self.share = share_of_update(gradient_accumulation_steps, batch_size, world)
        self.max_gradient_norm = math.inf if max_gradient_norm is None else max_gradient_norm
        self.scaler = precision.grad_scaler()
        self.step = 0

    def update(self) -> Update:
        """Take one optimizer step on the mean loss of k micro-batches (equation 16).

        Raises NonFiniteError before the weights change if the loss or the gradient is NaN or infinite.
        """
        started = time.perf_counter()
        first = self.step * self.gradient_accumulation_steps
        batches = [self.get_batch(first + micro_batch, rows) for micro_batch, rows in self.share]
        n_losses, n_tokens = self._totals(batches)
        set_learning_rate(self.optimizers, self.schedule(self.step))

        losses, figures = self._accumulate_gradients(batches, n_losses)
        gradient_norm = self._clip_gradients()
        # The only synchronisation with a GPU: all figures of the update are copied at once.
        *losses_of_batches, norm = torch.cat([losses, gradient_norm[None]]).tolist()
        self._require_finite(losses_of_batches, norm)
        self._step_optimizers(norm)

        self.step += 1
        return Update(
            loss=math.fsum(losses_of_batches),
            gradient_norm=norm,
            learning_rate=self.optimizers[0].param_groups[0]["lr"],
            tokens=n_tokens,
            seconds=time.perf_counter() - started,
            figures={name: mean.tolist() for name, mean in figures.items()},
        )

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """Inside, updates only show how long they take: afterwards all is as before the first update."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        before, scaler = [tensor.detach().clone() for tensor in tensors], self.scaler.state_dict()
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, before, strict=True):
                    tensor.copy_(value)
            for optimizer in self.optimizers:
                optimizer.state.clear()
            self.scaler.load_state_dict(scaler)
            self.step = 0

    def logits(self, inputs_BT: Tensor) -> Tensor:
        """Logits, computed under autocast in the run's precision."""
        with self.precision.autocast():
            return self.forward(inputs_BT)

    def whole_model(self) -> AbstractContextManager[None]:
        """Inside, this process holds all weights, unsharded, and the ranks exchange nothing."""
        if not self.is_sharded:
            return nullcontext()
        from pellucid.runtime.sharding import gathered

        return gathered(self.model)

    def _totals(self, batches: Sequence[AnyBatch]) -> tuple[int, int]:
        """The numbers of losses and of tokens in this update, over all ranks."""
        local = [sum(batch.n_losses for batch in batches), sum(batch.n_tokens for batch in batches)]
        n_losses, n_tokens = map(int, self.world.totals(local))
        return n_losses, n_tokens

    def _accumulate_gradients(self, batches: Sequence[AnyBatch], n_losses: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Leave the gradient of the mean loss in the parameters (equation 16).

        Returns each micro-batch's part of that mean, and the objective's other figures, means over the update.
        """
        results = [self._backward(batch, n_losses, i) for i, batch in enumerate(batches)]
        losses = torch.stack([loss for loss, _ in results])
        figures = {name: torch.stack([sums[name] for _, sums in results]).sum(dim=0) for name in results[0][1]}
        if self.world.size > 1:
            gradients = [] if self.is_sharded else self._gradients()
            self.world.sum_together([losses, *figures.values(), *gradients])
            if self.step == 0:
                agree_on_products(self.world)
        return losses, figures

    def _backward(self, batch: AnyBatch, n_losses: int, i: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Add this micro-batch's part of the gradient of the mean loss; return its part of the loss and figures.

        The mean is over the whole update, whose targets are counted before the model reads its first micro-batch.
        """
        self._seed_dropout(*self.share[i])
        loss = self.objective(self.logits, batch.to(self.precision.device))
        n = max(1, n_losses)
        self.scaler.scale((loss.sum + loss.penalty) / n).backward()  # type: ignore[no-untyped-call]
        return loss.sum.detach() / n, {name: figure / n for name, figure in loss.figures.items()}

    def _seed_dropout(self, micro_batch: int, rows: slice) -> None:
        """Seed dropout by step, micro-batch and row: whichever rank reads these rows, it drops the same."""
        # torch.manual_seed looks for other devices first, which takes milliseconds.
        on_cpu = self.precision.device.type == "cpu"
        seed = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed(int(np.random.SeedSequence([self.seed, self.step, micro_batch, rows.start or 0]).generate_state(1)[0]))

    def _gradients(self) -> list[Tensor]:
        """The gradients, the same list on every rank: zeros for parameters that this rank's rows did not use."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return [parameter.grad for parameter in trained if parameter.grad is not None]

    def _clip_gradients(self) -> Tensor:
        """Scale a gradient longer than `max_gradient_norm` down to it (Pascanu et al. 2013); return its norm."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        return full_tensor(nn.utils.clip_grad_norm_(self.model.parameters(), self.max_gradient_norm))

    def _step_optimizers(self, gradient_norm: float) -> None:
        """Update the weights, then clear the gradients."""
        for optimizer in self.optimizers:
            if math.isfinite(gradient_norm):  # clipping has spread an overflow to all gradients
                self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()

    def _require_finite(self, losses: Sequence[float], gradient_norm: float) -> None:
        # Under fp16 a gradient may overflow: then the update is skipped, and the scaler lowers its scale.
        culprits = {f"loss of micro-batch {i + 1} of {len(losses)}": loss for i, loss in enumerate(losses)}
        if not self.scaler.is_enabled():
            culprits["gradient"] = gradient_norm
        for name, value in culprits.items():
            if not math.isfinite(value):
                raise not_finite(self.step + 1, f"the {name} is not finite ({value:g}): no update was made")

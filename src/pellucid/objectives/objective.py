"""The interface of objectives: functions that run the model on a batch and return its loss, as a sum and a count.

Pretraining is the shortest one (`next_token`). Every other way to learn has its own kind of batch and its own
objective; the trainer knows nothing of either beyond this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from typing_extensions import Self

Forward = Callable[[Tensor], Tensor]  # tokens to logits


class AnyBatch(Protocol):
    """A batch of any kind. Its rows are the first axis of each of its tensors."""

    @property
    def n_losses(self) -> int:
        """How many losses to average (one for each target, pair or answer); known before the model has run."""

    @property
    def n_tokens(self) -> int:
        """The number of positions that the model reads."""

    def part(self, rows: slice) -> Self:
        """The batch of these rows alone."""

    def to(self, device: torch.device) -> Self: ...


@dataclass(frozen=True)
class Loss:
    """The loss of a batch, as sums, so that the micro-batches of an update can be added.

    sum: of all losses.   count: how many there are, which is the batch's `n_losses`.
    penalty: a further sum to minimise.   figures: further sums to log, by name.
    """

    sum: Tensor
    count: Tensor | int
    penalty: Tensor | float = 0.0
    figures: dict[str, Tensor] = field(default_factory=dict)


Objective = Callable[[Forward, Any], Loss]  # of the kind of batch that the objective was written for

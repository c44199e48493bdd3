"""What an objective is: a function that runs the model on a batch and returns the loss as a sum and a count.

Pretraining is the shortest one (`next_token`). Whatever else a model may learn from is a batch of its own kind with an
objective of its own; the trainer knows no more of either than what stands here.
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
    """Rows to learn from. All tensors of a batch have its rows as their first axis."""

    @property
    def n_losses(self) -> int:
        """How many losses are averaged, of targets, pairs or answers. Known before the model has run."""

    @property
    def n_tokens(self) -> int:
        """How many positions the model reads."""

    def part(self, rows: slice) -> Self:
        """Some of the rows."""

    def to(self, device: torch.device) -> Self: ...


@dataclass(frozen=True)
class Loss:
    """What an objective finds in a batch: sums, so that the parts of an update can be added.

    sum: of the loss.   count: of what it is a sum over, the batch's `n_losses`.
    penalty: what is minimised besides, a sum too.   figures: what is logged besides, by name: sums too.
    """

    sum: Tensor
    count: Tensor | int
    penalty: Tensor | float = 0.0
    figures: dict[str, Tensor] = field(default_factory=dict)


# The batch is of the kind that the objective was written for.
Objective = Callable[[Forward, Any], Loss]

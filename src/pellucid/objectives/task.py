"""What a run learns from, and how well it has learned it: all that differs between pretraining and what comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from pellucid.model.language_model import LanguageModel
from pellucid.objectives.loss import AnyBatch, Objective

# A micro-batch of the run, counted from 0, and which of its rows are wanted.
GetBatch = Callable[[int, slice], AnyBatch]


class Validation(Protocol):
    """What was found on held-out data. `str` of it is the last line of a training."""

    @property
    def loss(self) -> float:
        """What should be small: the checkpoint with the smallest is the best."""

    def brief(self) -> str:
        """The figures that are worth a line while training."""

    def to_row(self) -> dict[str, object]:
        """What metrics.jsonl keeps of it."""

    def to_json(self) -> dict[str, object]:
        """All figures, as `pellucid evaluate --json` prints them."""

    def table(self) -> str:
        """All figures, as a table to read."""


@dataclass(frozen=True)
class Task:
    """The batches, the objective, and `evaluate(model, max_tokens)`, which all ranks call together.

    `write_samples(model, n)` gives texts to show; None for tasks whose models go on with any text. `figure` is the one
    to look at first. Whatever a task must remember from one update to the next, `kept()` gives to each checkpoint, and
    `restore` takes back. Pretraining remembers nothing: its batches are a function of the step.
    """

    get_batch: GetBatch
    objective: Objective
    evaluate: Callable[[LanguageModel, int | None], Validation]
    write_samples: Callable[[LanguageModel, int], list[str]] | None = None
    figure: Literal["loss.png", "rewards.png"] = "loss.png"
    kept: Callable[[], dict[str, Tensor]] = dict
    restore: Callable[[dict[str, Tensor]], None] = lambda tensors: None

"""A task: its batches, objective and evaluation; all that differs between pretraining and post-training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from pellucid.model.language_model import LanguageModel
from pellucid.objectives.objective import AnyBatch, Objective

# A micro-batch of the run, counted from 0, and the rows wanted of it.
GetBatch = Callable[[int, slice], AnyBatch]


class Validation(Protocol):
    """The results on held-out data. Their `str` is the last line of a training."""

    @property
    def loss(self) -> float:
        """The figure by which the best checkpoint is chosen: the smaller the better."""

    def brief(self) -> str:
        """The main figures, in one line, to print while training."""

    def to_row(self) -> dict[str, object]:
        """The figures for a row of metrics.jsonl."""

    def to_json(self) -> dict[str, object]:
        """All figures, as `pellucid evaluate --json` prints them."""

    def table(self) -> str:
        """All figures, as a table to read."""


@dataclass(frozen=True)
class Task:
    """The batches, the objective, and `evaluate(model, max_tokens)`, which all ranks call together.

    `write_samples(model, n)` gives texts to show; None for tasks whose models continue any text. `figure` is the one
    to look at first. reward_sha256: the hash of the reward model's weights, if there is one. `state()` goes into
    each checkpoint, and `restore` takes it back. Pretraining has none: its batches are a function of the
    step.
    """

    get_batch: GetBatch
    objective: Objective
    evaluate: Callable[[LanguageModel, int | None], Validation]
    write_samples: Callable[[LanguageModel, int], list[str]] | None = None
    figure: Literal["loss.png", "rewards.png"] = "loss.png"
    reward_sha256: str | None = None
    state: Callable[[], dict[str, Tensor]] = dict
    restore: Callable[[dict[str, Tensor]], None] = lambda tensors: None

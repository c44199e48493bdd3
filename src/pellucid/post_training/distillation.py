"""Distillation: which texts a model learns from, its corpus's or its own, and who teaches, the truth or another model.

                      the rows of the corpus            what the model writes, with this update's weights
    truth             soft targets, from a file         the language follows the text, up to its first fault
    a run             the teacher reads every row       the teacher reads every row

What the model writes is a function of seed, step and weights: a run that is resumed writes the same again.

Shapes: B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.adapters.lora import merged
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import MODEL_FILE
from pellucid.config.post_training import DistillConfig
from pellucid.config.run import run_and_checkpoint
from pellucid.corpora.corpus import Corpus
from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import IGNORE_INDEX, Batch, Batches, batch_of
from pellucid.data.prepared import PreparedData
from pellucid.data.soft_targets import SoftTargets, distributions_along, soft_targets_of
from pellucid.errors import ConfigError, DataError
from pellucid.files import sha256
from pellucid.generation.answers import write_answers
from pellucid.languages.language import Language
from pellucid.languages.symbols import SymbolLanguage
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.distillation import SoftBatch, from_model, from_truth
from pellucid.objectives.objective import Forward
from pellucid.objectives.task import GetBatch, Task
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.trained import load_trained_model

Evaluate = Callable[[LanguageModel, int | None], Any]


@dataclass(frozen=True)
class Distillation:
    """Learning from a teacher. batches: the rows of the corpus; of one's own text there are as many."""

    objective: DistillConfig
    corpus: Corpus
    data: PreparedData
    batches: Batches
    model: LanguageModel
    precision: Precision

    def task(self, evaluate: Evaluate) -> Task:
        """The task, evaluated as pretraining is. ConfigError or DataError for a teacher that cannot teach this."""
        direction, on_policy = self.objective.divergence, self.objective.on_policy
        if self.objective.teacher == "truth":
            assert isinstance(self.corpus, Drawn), "the config has checked it"
            get_batch = self._judged_by(self.corpus.language) if on_policy else self._with_soft_targets(self.corpus)
            return Task(get_batch, partial(from_truth, direction=direction), evaluate)
        directory = find_step_directory(*run_and_checkpoint(self.objective.teacher))
        teach = partial(from_model, teacher=self._teacher(directory), temperature=self.objective.temperature)
        return Task(
            self._batch_of_own if on_policy else lambda i, rows: self.batches.batch(i).part(rows),
            partial(teach, direction=direction),
            evaluate,
            reward_sha256=sha256(directory / MODEL_FILE),
        )

    def _with_soft_targets(self, corpus: Drawn) -> GetBatch:
        """Rows of the corpus, with the true distribution of each target."""
        if not self.data.tokenizer.has_words:
            what = "it does not encode each word by itself, so the truth about its tokens is not known"
            raise DataError("tokenizer", what, "use bpe or char, or name a RUN as objective.teacher")
        targets = soft_targets_of(self.data.directory, corpus.language, self.data.tokenizer, corpus.documents("train"))

        def get_batch(micro_batch: int, rows: slice) -> SoftBatch:
            places_BT = self.batches.places(micro_batch)[rows]
            return SoftBatch(*batch_of(self.data.train, places_BT), *map(torch.from_numpy, targets.at(places_BT)))

        return get_batch

    def _judged_by(self, language: Language) -> GetBatch:
        """Texts by the model itself, up to their first faults, with the true distribution at each place."""
        if not isinstance(language, SymbolLanguage):
            what = "only a language of symbols can follow what a model writes, token by token"
            raise ConfigError("objective.on_policy", what, "set it to false, or name a RUN as objective.teacher")
        return lambda i, rows: soft_batch(language, self.data.tokenizer, self._write(i, rows))

    def _batch_of_own(self, micro_batch: int, rows: slice) -> Batch:
        return as_batch(self._write(micro_batch, rows), self.data.tokenizer.end_of_text)

    def _write(self, micro_batch: int, rows: slice) -> list[list[int]]:
        """Documents by the model as it is now, each with the token that ends it.

        Where the context is full, the end stands for any token: what should be next is judged, not what is.
        """
        first = micro_batch * self.batches.batch_size
        numbers = range(first, first + self.batches.batch_size)[rows]
        tokenizer = self.data.tokenizer
        with merged(self.model), self.precision.for_decoding().autocast():
            written = write_answers(
                self.model,
                [[tokenizer.end_of_text]] * len(numbers),
                [(self.batches.seed, number) for number in numbers],
                max_new_tokens=self.batches.context_length - 1,
                stop_ids=tokenizer.control_ids,
            )
        return [[*each.token_ids, *[tokenizer.end_of_text] * (each.finish_reason == "length")] for each in written]

    def _teacher(self, directory: Path) -> Forward:
        """The frozen model of a checkpoint. ConfigError if it reads other tokens, or less text."""
        name, trained = self.objective.teacher, load_trained_model(directory)
        if trained.config.objective.type == "masked":
            raise ConfigError("objective.teacher", f"{name} fills gaps, and goes on with no text", "name another run")
        if trained.tokenizer.to_json() != self.data.tokenizer.to_json():
            fix = "train both on the same corpus, or let both name the same vocabulary file"
            raise ConfigError("objective.teacher", f"{name} has another vocabulary", fix)
        if trained.model.context_length < self.batches.context_length:
            what = f"{name} reads {trained.model.context_length} tokens, fewer than {self.batches.context_length}"
            raise ConfigError("objective.teacher", what, "lower model.context_length, or take another teacher")
        return self.precision.computing(trained.model.requires_grad_(False).to(self.precision.device))


def soft_batch(language: SymbolLanguage[Any], tokenizer: Tokenizer, written: Sequence[Sequence[int]]) -> SoftBatch:
    """Texts up to their first faults, and the true distribution at each place, that of the fault included."""
    known = [list(distributions_along(language, tokenizer, ids)) for ids in written]
    documents = [ids[: len(found)] for ids, found in zip(written, known, strict=True)]
    batch = as_batch(documents, tokenizer.end_of_text)
    is_target_BT = (batch.targets_BT != IGNORE_INDEX).numpy()
    places_BT = np.where(is_target_BT, is_target_BT.cumsum().reshape(is_target_BT.shape) - 1, -1)
    targets = SoftTargets.of(chain.from_iterable(known), tokenizer.vocab_size)
    return SoftBatch(*batch, *map(torch.from_numpy, targets.at(places_BT)))


def as_batch(documents: Sequence[Sequence[int]], end_of_text: int) -> Batch:
    """Documents as rows, each after an end_of_text."""
    length = max(map(len, documents))
    inputs_BT = torch.full((len(documents), length), end_of_text)
    targets_BT = torch.full((len(documents), length), IGNORE_INDEX)
    for b, ids in enumerate(documents):
        inputs_BT[b, 1 : len(ids)] = torch.tensor(ids[:-1])
        targets_BT[b, : len(ids)] = torch.tensor(ids)
    return Batch(inputs_BT, targets_BT)

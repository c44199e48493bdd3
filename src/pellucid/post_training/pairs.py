"""Pairs of answers to the same prompt, of which one is better: read from token files, or written and judged here.

Pair n of a run depends on the run's seed and n alone, so a run resumes exactly.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError
from pellucid.generation.answers import write_answers
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.preference import PairBatch
from pellucid.post_training.rewards import GrammarJudge, rows_of
from pellucid.runtime.precision import Precision

_log = logging.getLogger(__name__)

Ids = Sequence[int]
AnswerLogProbabilities = Callable[[Tensor, Tensor], Tensor]  # of inputs and targets (N, T): one for each row

PAIRS_AT_ONCE = 256  # that are written together: many rows cost hardly more time than few
ATTEMPTS = 8  # to write two answers that are not equally good
VALIDATION_PAIRS = 256  # prompts of the validation part to which answers are written
TRAIN, VALIDATION = 0, 1  # part of the seed of what is drawn


class Pair(NamedTuple):
    """Token ids. The answers end with the token that ended them, or where they were cut off."""

    prompt: Ids
    chosen: Ids
    rejected: Ids

    @property
    def answers(self) -> tuple[Ids, ...]:
        return self.chosen, self.rejected


class Ranking(NamedTuple):
    """Token ids of a prompt and of its answers, from best to worst."""

    prompt: Ids
    answers: tuple[Ids, ...]


class Judged(NamedTuple):
    """Two answers, and how much more reward the first has than the second."""

    pair: Pair
    difference: float


def pair_batch(pairs: Sequence[Pair | Ranking], log_probabilities: AnswerLogProbabilities | None) -> PairBatch:
    """The pairs as rows, as wide as the longest needs. `log_probabilities` are the reference's; None: it is not needed.

    An answer's last token is an input as well, with nothing to predict after it: a reward is read there.
    """
    prompts = [pair.prompt for pair in pairs for _ in pair.answers]
    inputs_NT, targets_NT = rows_of(prompts, [answer for pair in pairs for answer in pair.answers])
    reference_N = torch.zeros(len(prompts)) if log_probabilities is None else log_probabilities(inputs_NT, targets_NT)
    inputs_PKT, targets_PKT = (rows_NT.view(len(pairs), -1, rows_NT.size(1)) for rows_NT in (inputs_NT, targets_NT))
    return PairBatch(inputs_PKT, targets_PKT, reference_N.view(len(pairs), -1))


def prompt_of(token_file: TokenFile, i: int) -> list[int]:
    """Conversation i up to where the first answer begins, from its end_of_text on."""
    return _split(token_file, i)[0]


def ranking_of(token_file: TokenFile, i: int, n_answers: int) -> Ranking:
    """The i-th `n_answers` conversations: the same prompt with each answer, from best to worst."""
    first = i * n_answers
    return Ranking(prompt_of(token_file, first), tuple(_split(token_file, first + k)[1] for k in range(n_answers)))


def _split(token_file: TokenFile, i: int) -> tuple[list[int], list[int]]:
    """Conversation i: the tokens before its first answer, and from there on."""
    assert token_file.is_target is not None
    start, end = token_file.boundaries[i : i + 2]
    ids: list[int] = token_file.tokens[start:end].tolist()
    n_prompt = int(token_file.is_target[start:end].argmax())
    return ids[:n_prompt], ids[n_prompt:]


def pairs_that_fit(token_file: TokenFile, context_length: int, n_answers: int = 2) -> list[int]:
    """The numbers of the pairs, or rankings, of which all answers fit into the context. DataError if there are none.

    A warning says how many are left out.
    """
    lengths = np.diff(token_file.boundaries)
    fitting: list[int] = np.flatnonzero(lengths.reshape(-1, n_answers).max(axis=1) <= context_length).tolist()
    kind = "pair" if n_answers == 2 else "ranking"
    if not fitting:
        what = f"no {kind} of the {token_file.name} split fits into model.context_length {context_length}"
        raise DataError("corpus.files", what, "use a model with a longer context, or shorter answers")
    if (n := len(lengths) // n_answers) > len(fitting):
        what = "%s of %s %ss of the %s split are longer than model.context_length %s and are left out"
        _log.warning(what, f"{n - len(fitting):,}", f"{n:,}", kind, token_file.name, f"{context_length:,}")
    return fitting


def in_new_order(items: Sequence[int], seed: int) -> Callable[[int], int]:
    """From n = 0, 1, … to the n-th item: each epoch has every item once, in an order of its own."""

    @lru_cache(maxsize=2)
    def order_of(epoch: int) -> list[int]:
        order: list[int] = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(items).tolist()
        return order

    def nth(n: int) -> int:
        epoch, place = divmod(n, len(items))
        return order_of(epoch)[place]

    return nth


@dataclass(kw_only=True)
class PairWriter:
    """Writes two answers to a prompt and has them judged; the one of reward r is chosen with p = σ((r - s) / noise).

    So Bradley and Terry's model holds for the rewards r / noise, and DPO ends at the optimum of that reward (equation
    P8). Answers of equal reward are drawn again, as they say nothing; if they still are, chance chooses, as in the
    model. Without noise the better answer is chosen, and equal rewards make no pair.

    fork: the second answer keeps the first one's tokens up to its fault, so that the two differ in what matters.
    cut: with "each", an answer ends where its reward is certain. All that could follow has the same reward, so equation
    P8 holds for the beginning as well, and what follows is noise. With "both", the better one also ends after as many
    tokens as the worse. Its reward is not certain then, and to take it for granted is a small error.
    """

    model: LanguageModel
    prompt: Callable[[int], Ids]
    judge: GrammarJudge
    precision: Precision
    stop_ids: Sequence[int]
    max_new_tokens: int
    noise: float
    seeds: Sequence[int]
    fork: bool = False
    cut: Literal["none", "each", "both"] = "none"

    def __call__(self, numbers: Sequence[int]) -> list[Pair | None]:
        """The pairs of these numbers; None for one without a preference."""
        judged: dict[int, Judged] = {}
        for attempt in range(ATTEMPTS):
            equal = [n for n in numbers if n not in judged or judged[n].difference == 0]
            if equal:
                judged.update(zip(equal, self._written(equal, attempt), strict=True))
        return [self._preferred(n, judged[n]) for n in numbers]

    def _written(self, numbers: Sequence[int], attempt: int) -> list[Judged]:
        prompts = [self.prompt(n) for n in numbers]
        seeds = [[(*self.seeds, n, attempt, side) for n in numbers] for side in range(2)]
        if not self.fork:
            both = self._answers([*prompts, *prompts], [*seeds[0], *seeds[1]])
            firsts, seconds = both[: len(prompts)], both[len(prompts) :]
        else:
            firsts = self._answers(prompts, seeds[0])
            n_shared = map(self.judge.n_before_fault, prompts, firsts)
            starts = [first[:n] for first, n in zip(firsts, n_shared, strict=True)]
            rests = self._answers([[*prompt, *start] for prompt, start in zip(prompts, starts, strict=True)], seeds[1])
            seconds = [[*start, *rest][: self.max_new_tokens] for start, rest in zip(starts, rests, strict=True)]
        return [
            Judged(Pair(prompt, first, second), self.judge.reward(prompt, first) - self.judge.reward(prompt, second))
            for prompt, first, second in zip(prompts, firsts, seconds, strict=True)
        ]

    def _answers(self, prompts: Sequence[Ids], seeds: Sequence[Sequence[int]]) -> list[list[int]]:
        with self.precision.for_decoding().autocast():
            options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "stop_ids": self.stop_ids}
            return [each.token_ids for each in write_answers(self.model, prompts, seeds, **options)]

    def _preferred(self, number: int, judged: Judged) -> Pair | None:
        (prompt, first, second), difference = judged
        if self.noise == 0 and difference == 0:
            return None
        point = np.random.Generator(np.random.Philox([*self.seeds, number])).random()
        # The logistic function of difference / noise, in a form that cannot overflow.
        p_first = (1 + math.tanh(difference / self.noise / 2)) / 2 if self.noise else float(difference > 0)
        if self.cut != "none":
            ends = [self.judge.n_until_settled(prompt, answer) for answer in (first, second)]
            if self.cut == "both":
                ends = [ends[difference > 0]] * 2
            first, second = first[: ends[0]], second[: ends[1]]
        return Pair(prompt, first, second) if point < p_first else Pair(prompt, second, first)


def pairs_of_update(
    write: Callable[[Sequence[int]], Sequence[Pair | None]], *, batch_size: int, batches_per_update: int
) -> Callable[[int, slice], list[Pair]]:
    """These rows of a micro-batch, written together with those of the same place in the next updates.

    Always with the same others, also after a resume: rounding depends on what is computed together.
    """
    updates = max(1, PAIRS_AT_ONCE // (batch_size * batches_per_update))

    @lru_cache(maxsize=batches_per_update)
    def block(number: int, place: int, rows: range) -> list[Pair | None]:
        first = (number * updates * batches_per_update + place) * batch_size
        n_between = batches_per_update * batch_size
        return list(write([first + i * n_between + row for i in range(updates) for row in rows]))

    def get(micro_batch: int, rows: slice) -> list[Pair]:
        update, place = divmod(micro_batch, batches_per_update)
        number, i = divmod(update, updates)
        taken = range(batch_size)[rows]
        pairs = block(number, place, taken)[i * len(taken) : (i + 1) * len(taken)]
        return [pair for pair in pairs if pair is not None]

    return get

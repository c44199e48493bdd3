"""Rewards of answers: the grammar's verdict, or what a reward model has learned of such verdicts.

Shapes: N answers, T positions.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pellucid.corpora.instructions import InstructionsCorpus, Task, Verdict, settled
from pellucid.data.batches import IGNORE_INDEX
from pellucid.evaluation.answers import verdict_on
from pellucid.objectives.preference import at_last_token
from pellucid.tokenizer import Tokenizer

Ids = Sequence[Sequence[int]]


class Judged(NamedTuple):
    """The judgement of an answer, of whose tokens the first `n_tokens` count.

    parts: its reward is their sum.   settled: after which of its tokens each of them was certain.
    figures: what is reported, under the names of who asks.
    """

    parts: tuple[float, float]
    settled: tuple[int, int]
    figures: tuple[float, float]
    n_tokens: int


# From prompts, answers and what is known of them to rewards (N,).
Reward = Callable[[Ids, Ids, Sequence[Judged]], Tensor]


def places_settled(
    corpus: InstructionsCorpus, tokenizer: Tokenizer, task: Task, answer: Sequence[int], verdict: Verdict
) -> tuple[int, int]:
    """With which tokens of an answer it became certain whether it is whole, and whether it obeys. The last may be its
    end.
    """
    n_bytes = list(map(len, tokenizer.spelled(answer)))
    text = tokenizer.decode(answer)
    whole, obeys = (
        min(bisect_left(list(accumulate(n_bytes)), len(text[:n_characters].encode())), len(answer) - 1)
        for n_characters in settled(corpus.fables, task, text, verdict)
    )
    # At the end, which has no characters, the bytes before it are not enough to tell.
    return (len(answer) - 1 if verdict.broken_at is None else whole), obeys


def by_verifier(_prompts: Ids, _answers: Ids, judged: Sequence[Judged]) -> Tensor:
    """The sum of the parts: of instructions, half a point for a whole fable and half for one that obeys."""
    return torch.tensor([float(sum(each.parts)) for each in judged])


class GrammarJudge:
    """The grammar's judgement of an answer to a prompt, both given as token ids."""

    def __init__(self, corpus: InstructionsCorpus, tokenizer: Tokenizer) -> None:
        self._corpus, self._tokenizer = corpus, tokenizer

    def reward(self, prompt: Sequence[int], answer: Sequence[int]) -> float:
        """0, a half or 1 point."""
        return self._task_and_verdict(prompt, answer)[1].reward

    def n_before_fault(self, prompt: Sequence[int], answer: Sequence[int]) -> int:
        """The number of tokens before the first that lost some of the reward; half of them if none did."""
        verdict, places = self._verdict_and_places(prompt, answer)
        faults = [place for place, good in zip(places, (verdict.whole, verdict.obeys), strict=True) if not good]
        return min(faults, default=len(answer) // 2)

    def n_until_settled(self, prompt: Sequence[int], answer: Sequence[int]) -> int:
        """The number of tokens after which the whole reward is certain."""
        return max(self._verdict_and_places(prompt, answer)[1]) + 1

    def _task_and_verdict(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[Task, Verdict]:
        task = self._corpus.task_of(self._tokenizer.decode(prompt))
        assert task is not None
        return task, verdict_on(self._corpus, self._tokenizer, task, answer)

    def _verdict_and_places(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[Verdict, tuple[int, int]]:
        task, verdict = self._task_and_verdict(prompt, answer)
        return verdict, places_settled(self._corpus, self._tokenizer, task, answer, verdict)


class LearnedReward:
    """The output of a reward model at the last token of an answer."""

    def __init__(self, scores: Callable[[Tensor], Tensor]) -> None:
        self._scores = scores

    @torch.no_grad()
    def __call__(self, prompts: Ids, answers: Ids, _judged: Sequence[Judged]) -> Tensor:
        inputs_NT, targets_NT = rows_of(prompts, answers)
        return at_last_token(self._scores(inputs_NT).float().cpu(), targets_NT)


def rows_of(prompts: Ids, answers: Ids) -> tuple[Tensor, Tensor]:
    """Prompts with their answers, and the token after each where that is an answer's, else IGNORE_INDEX: (N, T) each.

    A row that is shorter than others is filled with zeros, which no earlier position sees.
    """
    rows = list(zip(prompts, answers, strict=True))
    inputs = [torch.tensor([*prompt, *answer]) for prompt, answer in rows]
    targets = [torch.tensor([IGNORE_INDEX] * (len(prompt) - 1) + [*answer, IGNORE_INDEX]) for prompt, answer in rows]
    inputs_NT = pad_sequence(inputs, batch_first=True)
    return inputs_NT, pad_sequence(targets, batch_first=True, padding_value=IGNORE_INDEX)

"""Asking a policy, and judging its answers: instructions here, the questions of languages in `questions.py`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pellucid.corpora.instructions import Instruction, InstructionsCorpus
from pellucid.evaluation.answers import verdict_on
from pellucid.post_training.rewards import Judged, places_settled
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids


class Asking(Protocol):
    """Asks, and judges answers. What is asked may be of any type.

    kind: of what is asked, in the plural.   names: of the figures of a judged answer.   words: the means of them, to
    be filled in.
    """

    kind: str
    names: tuple[str, str]
    words: str

    @property
    def held_out(self) -> Sequence[Any]:
        """All that is asked in validation, and never in training."""

    def ask(self, rng: random.Random) -> Any:
        """Something to ask in training."""

    def prompt(self, asked: Any) -> list[int]:
        """The tokens after which an answer begins."""

    def judge(self, asked: Any, answer: Sequence[int]) -> Judged:
        """How good an answer is, given as tokens."""

    def in_words(self, asked: Any, answer: str, judged: Judged) -> str:
        """A sample for people to read: the question, the answer, and how good that is."""


@dataclass(frozen=True)
class Instructions:
    """Instructions about fables, half a point for a whole fable and half for one that obeys."""

    corpus: InstructionsCorpus
    tokenizer: Tokenizer
    kind = "instructions"
    names = ("whole", "obeys")
    words = "{whole:.1%} whole, {obeys:.1%} obey"

    @cached_property
    def held_out(self) -> list[Instruction]:
        return [instruction for instruction, _ in self.corpus.examples("validation")]

    def ask(self, rng: random.Random) -> Instruction:
        return self.corpus.ask(rng, "train")

    def prompt(self, asked: Instruction) -> list[int]:
        return prompt_ids(self.tokenizer, [("user", asked.text)])

    def judge(self, asked: Instruction, answer: Sequence[int]) -> Judged:
        verdict = verdict_on(self.corpus, self.tokenizer, asked.task, answer)
        settled = places_settled(self.corpus, self.tokenizer, asked.task, answer, verdict)
        return Judged((verdict.whole / 2, verdict.obeys / 2), settled, (verdict.whole, verdict.obeys), len(answer))

    def in_words(self, asked: Instruction, answer: str, judged: Judged) -> str:
        whole, obeys = judged.figures
        verdict = f"{'a' if whole else 'no'} whole fable, {'as' if obeys else 'not as'} asked"
        return f"**{asked.text}**\n\n{answer}\n\n({verdict})"

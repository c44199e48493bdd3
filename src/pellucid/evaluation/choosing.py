"""Choosing among several answers: what is gained by asking the same question again?

    question   : a 2       right: c
    answers    c b c d     one of them is right, and so is the majority

Answers are drawn independently: of a question with p(right) = p, one of n answers is right with probability
1 - (1 - p)^n. Were all questions equally hard, the mean p would give the whole curve. A curve below it says that errors
belong together: some questions are got wrong again and again, and asking once more does not help.

Shapes: N questions, T positions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from pellucid.data.batches import IGNORE_INDEX
from pellucid.evaluation.estimate import Estimate, mean_of
from pellucid.generation.answers import write_answers
from pellucid.languages.symbols import Question, SymbolLanguage, symbols_of, text_of
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.objectives.policy import log_probabilities
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer

ROWS_AT_ONCE = 128


@dataclass(frozen=True)
class Answered:
    """A question's kind, its right answer, and those that a model gave.

    p_right: the model's exact probability of the right one; None where it writes a thought first, of which there are
    too many to sum over.
    """

    kind: str
    right: str
    answers: Sequence[str]
    p_right: float | None

    def best_of(self, n: int) -> float:
        """How often one of n of these answers is right, in the mean over all choices of n (Chen et al. 2021)."""
        n_all, n_wrong = len(self.answers), sum(answer != self.right for answer in self.answers)
        return 1 - math.comb(n_wrong, n) / math.comb(n_all, n)

    def majority_of(self, n: int) -> float:
        """How often the commonest of n answers is right, in the mean over each n in a row; of a tie, one is drawn."""
        groups = [self.answers[first : first + n] for first in range(0, len(self.answers) - n + 1, n)]
        return fmean(share_of_majority(group, self.right) for group in groups)


def share_of_majority(answers: Sequence[str], right: str) -> float:
    """1 if the commonest answer is the right one, 1/k if k are equally common and it is one of them, otherwise 0."""
    counts = Counter(answers)
    commonest = [answer for answer, count in counts.items() if count == max(counts.values())]
    return commonest.count(right) / len(commonest)


def one_of(n: int, p: float) -> float:
    """The probability that one of n independent answers is right."""
    return 1 - (1 - p) ** n


@dataclass(frozen=True)
class Choices:
    """Answers to all questions, and how much it is worth to choose among n to each."""

    answered: Sequence[Answered]

    @property
    def n_samples(self) -> int:
        return len(self.answered[0].answers)

    @property
    def one(self) -> Estimate:
        """The share of answers that are right."""
        return mean_of(np.array([each.best_of(1) for each in self.answered]))

    def kinds(self) -> dict[str, Choices]:
        """Choices of each kind of question, in the order of the language's skills."""
        names = dict.fromkeys(each.kind for each in self.answered)
        return {name: Choices([each for each in self.answered if each.kind == name]) for name in names}

    def curve(self) -> dict[int, dict[str, float | None]]:
        """By n: the best and the majority of n answers, and the best as it is foreseen.

        exact: from each question's p(right), None where that is not known; equally_hard: from the mean of all.
        """
        sizes = sorted({*(2**i for i in range(self.n_samples.bit_length())), self.n_samples})
        known = [each.p_right for each in self.answered if each.p_right is not None]
        return {
            n: {
                "best": fmean(each.best_of(n) for each in self.answered),
                "exact": fmean(one_of(n, p) for p in known) if len(known) == len(self.answered) else None,
                "equally_hard": one_of(n, self.one.mean),
                "majority": fmean(each.majority_of(n) for each in self.answered),
            }
            for n in sizes
        }

    def to_json(self) -> dict[str, object]:
        kinds = {"all": self, **self.kinds()}
        return {name: {"questions": len(some.answered), "by_n": some.curve()} for name, some in kinds.items()}

    def table(self) -> str:
        """All figures for a person to read."""
        from pellucid.tables import table

        n = self.n_samples
        heading = "answers to held-out questions", "number", "one is right", f"best of {n}", f"majority of {n}"
        rows = []
        for name, some in {"all": self, **self.kinds()}.items():
            last, one = some.curve()[n], some.one
            share = f"{one.mean:.1%}" + (f" ± {one.half_width:.1%}" if len(some.answered) > 1 else "")
            rows.append((name, f"{len(some.answered):,}", share, f"{last['best']:.1%}", f"{last['majority']:.1%}"))
        if n == 1:
            return table(heading[:3], [row[:3] for row in rows])
        names = "n answers to each", "best", "by its own p(right)", "if all were equally hard", "majority"
        curve = [
            (str(n), *("" if share is None else f"{share:.1%}" for share in shares.values()))
            for n, shares in self.curve().items()
        ]
        return f"{table(heading, rows)}\n\n{table(names, curve)}"


def answer_questions(
    model: LanguageModel,
    tokenizer: Tokenizer,
    language: SymbolLanguage[Any],
    texts: Iterable[str],
    precision: Precision,
    *,
    n: int,
    n_samples: int,
    seed: int = 0,
) -> list[Answered]:
    """Answers to n questions, one of each text, `n_samples` to each, at temperature 1. The same seed draws the same.

    Of text i it is question i, counted around, so that all are asked alike often. What came before is as in the text.
    Raises ConfigError if the context has no room for a question.
    """
    asked: list[tuple[Sequence[str], Question]] = []
    for i, text in enumerate(islice(texts, n)):
        symbols = symbols_of(text)
        questions = language.questions(symbols)
        asked.append((symbols, questions[i % len(questions)]))
    prompts = [[tokenizer.end_of_text, *tokenizer.encode(text_of(symbols[: q.begin]))] for symbols, q in asked]
    answers = [tokenizer.encode(text_of(symbols[q.begin : q.end])) for symbols, q in asked]
    rows = [(number, sample) for number in range(len(asked)) for sample in range(n_samples)]
    written: list[str] = []
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[first : first + ROWS_AT_ONCE]
        with precision.for_decoding().autocast():
            writings = write_answers(
                model,
                [prompts[number] for number, _ in some],
                [(seed, *row) for row in some],
                max_new_tokens=max(len(answers[number]) for number, _ in some),
                stop_ids=tokenizer.control_ids,
            )
        for (number, _), each in zip(some, writings, strict=True):
            ids = each.token_ids[: len(answers[number])]  # as many as the right answer has
            written.append(tokenizer.decode(id_ for id_ in ids if id_ not in tokenizer.control_ids))
    p_right = answer_probabilities(model, prompts, answers, precision)
    answered = [
        Answered(
            kind=q.kind,
            right=text_of(symbols[q.answer : q.end]),
            answers=[
                text_of(symbols_of(text)[q.answer - q.begin : q.end - q.begin])
                for text in written[number * n_samples : (number + 1) * n_samples]
            ],
            p_right=p if q.begin == q.answer else None,
        )
        for number, ((symbols, q), p) in enumerate(zip(asked, p_right, strict=True))
    ]
    return sorted(answered, key=lambda each: language.skills.index(each.kind))


@torch.inference_mode()
def answer_probabilities(
    model: LanguageModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], precision: Precision
) -> list[float]:
    """p(answer | prompt) of each pair: the product of the probabilities of its tokens."""
    p_N: list[float] = []
    with eval_mode(model):
        for first in range(0, len(prompts), ROWS_AT_ONCE):
            rows = list(zip(prompts, answers, strict=True))[first : first + ROWS_AT_ONCE]
            inputs = [torch.tensor([*prompt, *answer][:-1]) for prompt, answer in rows]
            targets = [torch.tensor([IGNORE_INDEX] * (len(prompt) - 1) + [*answer]) for prompt, answer in rows]
            inputs_NT = pad_sequence(inputs, batch_first=True).to(precision.device)
            targets_NT = pad_sequence(targets, batch_first=True, padding_value=IGNORE_INDEX).to(precision.device)
            with precision.autocast():
                logits_NTV = model(inputs_NT)
            p_N += log_probabilities(logits_NTV, targets_NT).sum(dim=1).exp().tolist()
    return p_N

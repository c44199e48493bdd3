"""Questions whose thoughts are optional: the policy writes the mark, and so decides whether it thinks.

question  a 3     ? b c a     right, after a thought of two symbols: 1 - 2 x price
                  : b         wrong, at once: 0
"""

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from pellucid.data.prepared import PreparedData
from pellucid.data.token_file import TokenFile
from pellucid.evaluation.answers import text_of as text_before_end
from pellucid.languages.symbols import SymbolLanguage, symbols_of, text_of
from pellucid.post_training.rewards import Judged

BYTES = 2  # of a symbol with its blank


class Form(NamedTuple):
    """An answer after its mark: a thought with this number of symbols, and what is right then."""

    thought: int
    right: list[str]


class Asked(NamedTuple):
    """A document up to a question, and the form of an answer after each mark that may come next."""

    text: str
    forms: Mapping[str, Form]


@dataclass(frozen=True)
class Questions:
    """Questions of the prepared documents: a point for the right answer, less `price` for each symbol of a thought."""

    language: SymbolLanguage[Any]
    data: PreparedData
    price: float
    kind = "questions"
    names = ("right", "thought")
    words = "{right:.1%} right, thoughts of {thought:.2f} symbols"

    @cached_property
    def held_out(self) -> list[Asked]:
        """Question i of held-out document i, counted around, so that all are asked alike often."""
        validation = self.data.validation
        return [self._asked(validation, i, i) for i in range(len(validation.boundaries) - 1)]

    def ask(self, rng: random.Random) -> Asked:
        n_documents = len(self.data.train.boundaries) - 1
        return self._asked(self.data.train, rng.randrange(n_documents), rng.randrange(n_documents))

    def prompt(self, asked: Asked) -> list[int]:
        return [self.data.tokenizer.end_of_text, *self.data.tokenizer.encode(asked.text)]

    def judge(self, asked: Asked, answer: Sequence[int]) -> Judged:
        """An answer ends at its place, and what was written after it does not count. With another mark, it is wrong."""
        tokenizer = self.data.tokenizer
        mark, *_ = symbols_of(text_before_end(tokenizer, answer)) or [""]
        thought, right = asked.forms.get(mark, Form(0, []))
        ends = list(accumulate(map(len, tokenizer.spelled(answer))))
        at_mark, last = (min(bisect_left(ends, BYTES * n), len(answer) - 1) for n in (1, 1 + thought + len(right)))
        written = symbols_of(text_before_end(tokenizer, answer[: last + 1]))[1:]
        is_right, n_thought = mark in asked.forms and written[thought:] == right, min(thought, len(written))
        return Judged((is_right, -self.price * n_thought), (last, at_mark), (is_right, n_thought), last + 1)

    def in_words(self, asked: Asked, answer: str, judged: Judged) -> str:
        return f"**{asked.text}**{answer}\n\n({'right' if judged.figures[0] else 'wrong'})"

    def _asked(self, token_file: TokenFile, document: int, number: int) -> Asked:
        """The question of this number, counted around."""
        begin, end = token_file.boundaries[document : document + 2]
        symbols = symbols_of(self.data.tokenizer.decode(token_file.tokens[begin + 1 : end].tolist()))
        questions = self.language.questions(symbols)
        number %= len(questions)
        text, forms = text_of(symbols[: questions[number].begin - 1]), dict[str, Form]()
        for mark in self.language.words_on(text, len):
            symbols = symbols_of(self.language.likeliest(text + mark.text))
            question = self.language.questions(symbols)[number]
            forms[mark.text[1:]] = Form(question.answer - question.begin, symbols[question.answer : question.end])
        return Asked(text, forms)

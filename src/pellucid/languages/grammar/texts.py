"""The texts of a grammar as a distribution: to sample from, compute with and analyse."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pellucid.errors import DataError
from pellucid.languages.grammar import continuations
from pellucid.languages.grammar.deciding import decided_pieces
from pellucid.languages.grammar.entropy import Inside, Mass
from pellucid.languages.grammar.grammar import Fork, Grammar
from pellucid.languages.grammar.skills import SkillReader
from pellucid.languages.language import Decided, Language, NextWord, WordLength


class GrammarTexts(Language):
    """The distribution of a grammar's texts. noun: what a text is called in messages."""

    grammar: Grammar
    skill_reader: SkillReader
    noun = "text"

    def write(self, rng: random.Random) -> str:
        """Draw a text."""
        return self.grammar.derive(rng.random)

    def read(self, text: str) -> Sequence[tuple[Fork, int]]:
        """The choices that write this text. Raises DataError for one that the grammar cannot write."""
        drawn, end, following = self.grammar.read(text)
        if following or end < len(text):
            what = f"{text[:40]!r} is not a {self.noun}"
            raise DataError(f"{self.noun}s", what, "give a text that the grammar can write")
        return drawn

    def log_probability(self, text: str) -> float:
        """Natural logarithm of the probability of this text (nats); minus infinity if the grammar cannot write it."""
        try:
            return math.fsum(math.log(fork.probability(index)) for fork, index in self.read(text))
        except DataError:
            return -math.inf

    def next_character_distribution(self, prefix: str) -> Mapping[str, float]:
        """p(next character | prefix), exactly; "" is the end of the text; {} if no text begins like this."""
        return continuations.next_character_distribution(self.grammar, prefix)

    def decided_pieces(self, text: str) -> list[Decided]:
        """The pieces of a text that earlier words decide, with those words. Raises DataError if it is impossible."""
        return decided_pieces(self.read(text))

    def likeliest(self, beginning: str) -> str:
        """The text with this beginning, continued by the likeliest option of each choice. DataError if impossible."""
        drawn, end, fork = self.grammar.read(beginning)
        parts = [choice.write(index)[0] for choice, index in drawn]
        while fork:
            written = beginning[end:]  # what is already there of this choice's text
            fitting = [i for i in fork.allowed() if fork.write(i)[0].startswith(written)]
            if not fitting:
                break
            text, fork = fork.write(max(fitting, key=fork.probability))
            parts.append(text)
            end += len(text)
        if fork or end < len(beginning):
            what = f"no {self.noun} begins with {beginning[:40]!r}"
            raise DataError(f"{self.noun}s", what, "give a text that the grammar can write")
        return "".join(parts)

    def words_of(self, text: str, word_length: WordLength) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a text, and p(word | the words before it). Raises DataError if the text is impossible."""
        return continuations.words_of(text, self.read(text), word_length)

    def words_on(self, prefix: str, word_length: WordLength) -> Mapping[NextWord, float]:
        """p(next word | these complete words); {} if no text begins like this."""
        return continuations.words_on(self.grammar, prefix, word_length)

    def skills_of(self, text: str) -> list[int]:
        """The index in `skills` of each character of a text. Raises DataError if the text is impossible."""
        return [self.skills.index(skill) for skill in self.skill_reader.skills(self.read(text))]

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a text, by dynamic programming over the grammar (see `entropy`)."""
        return self._mass.entropy

    @property
    def n_texts(self) -> int:
        """The number of different texts."""
        return self._mass.number

    @property
    def _mass(self) -> Mass:
        return self.inside.whole

    @cached_property
    def inside(self) -> Inside:
        """The masses of all parts of a text."""
        return Inside(self.grammar)

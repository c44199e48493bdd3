"""Fables: a distribution over short stories that can be drawn from, computed with, and taken apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pellucid.corpora.corpus import NextWord, WordLength
from pellucid.corpora.fables import continuations
from pellucid.corpora.fables.entropy import Mass, whole_mass
from pellucid.corpora.fables.grammar import Fork, Grammar
from pellucid.corpora.fables.notation import Option, read_rules
from pellucid.corpora.fables.skills import SkillReader, Span
from pellucid.corpora.fables.story import STORY
from pellucid.corpora.fables.storylines import MORALS, PLOTS
from pellucid.corpora.fables.vocabulary import tables
from pellucid.errors import DataError

# Part of every corpus's identity: raise it with any change that changes a fable or its probability.
GRAMMAR_VERSION = 2

Rules = Mapping[str, Sequence[Option]]

# By attribute (of anything) or by variable; what is told by any other attribute is recalled.
_SKILL_OF = {
    **dict.fromkeys(("home", "food", "call", "gait", "pride", "talent", "rival"), "fact"),
    **dict.fromkeys(("he", "him", "his", "a", "s", "were", "them", "past"), "agreement"),
    **dict.fromkeys(("left", "ordinal"), "count"),
    "moral": "moral",
}


@dataclass(frozen=True)
class Fable:
    """A text, and the skill that predicting each of its characters needs."""

    text: str
    spans: tuple[Span, ...]


def story_rules(world_size: int) -> dict[str, tuple[Option, ...]]:
    """The rules of all fables in a world of so many animals."""
    return {**read_rules(STORY), **read_rules(PLOTS), **tables(world_size)}


class Fables:
    """The distribution of fables in a world of `world_size` animals.

    `rules` replaces the story by another (tests tell smaller ones). Raises ConfigError for a world that cannot be.
    """

    def __init__(self, world_size: int, rules: Rules | None = None) -> None:
        rules = story_rules(world_size) if rules is None else rules
        self.world_size = world_size
        self.grammar = Grammar(rules, constants={"moral": MORALS})
        self._skills = SkillReader(self.grammar, rules, _SKILL_OF)

    def write(self, rng: random.Random) -> str:
        """Draw the text of a fable: `sample` without spans, which is faster."""
        return self.grammar.derive(rng.random)[0]

    def sample(self, rng: random.Random) -> Fable:
        """Draw a fable. Its spans are those of the choices drawn, not found by reading the text."""
        text, drawn = self.grammar.derive(rng.random)
        return Fable(text, self._skills.spans(drawn))

    def log_probability(self, text: str) -> float:
        """Natural logarithm of the probability of this text (nats); minus infinity where it is no fable."""
        return self.grammar.log_probability(text)

    def next_character_distribution(self, prefix: str) -> dict[str, float]:
        """p(next character | prefix), exactly; "" stands for the end of the fable; {} where no fable begins so."""
        return continuations.next_character_distribution(self.grammar, prefix)

    def words_on(self, prefix: str, word_length: WordLength) -> dict[NextWord, float]:
        """p(next word | these whole words), exactly; {} where no fable begins so. `word_length` tells words apart."""
        return continuations.words_on(self.grammar, prefix, word_length)

    def words_of(self, text: str, word_length: WordLength) -> Iterator[tuple[str, Mapping[NextWord, float]]]:
        """Each word of a fable beside p(word | the whole words before it). Raises DataError for no fable."""
        return continuations.words_of(self.grammar, text, self._read(text), word_length)

    def spans(self, text: str) -> tuple[Span, ...]:
        """The skills of a fable, by reading it. Raises DataError for a text that is no fable."""
        return self._skills.spans(self._read(text))

    def stories(self) -> Iterator[tuple[str, float]]:
        """Every fable with its probability: for `rules` with few fables; any world has too many to wait for."""
        return self.grammar.stories()

    @property
    def entropy_nats(self) -> float:
        """Entropy of one fable, exactly, by dynamic programming over the grammar (see `entropy`)."""
        return self._mass.entropy

    @property
    def n_fables(self) -> int:
        """How many different fables there are."""
        return self._mass.number

    def _read(self, text: str) -> list[tuple[Fork, int]]:
        drawn = self.grammar.read(text)
        if drawn is None:
            raise DataError("fables", f"{text[:40]!r} is no fable", "give a text that the grammar can write")
        return drawn

    @cached_property
    def _mass(self) -> Mass:
        return whole_mass(self.grammar)

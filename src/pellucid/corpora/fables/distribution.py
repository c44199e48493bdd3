"""Fables: a distribution over short stories that you can sample, compute with and take apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pellucid.corpora.fables import continuations
from pellucid.corpora.fables.entropy import Mass, whole_mass
from pellucid.corpora.fables.grammar import Fork, Grammar
from pellucid.corpora.fables.notation import Option, read_rules
from pellucid.corpora.fables.skills import SkillReader, Span
from pellucid.corpora.fables.story import STORY
from pellucid.corpora.fables.storylines import MORALS, STORYLINES
from pellucid.corpora.fables.vocabulary import tables
from pellucid.errors import DataError

# Part of every corpus's identity: raise it whenever a fable or its probability changes.
GRAMMAR_VERSION = 2

Rules = Mapping[str, Sequence[Option]]

# The skill of an attribute (of anything) or of a variable; everything else is recall.
_SKILL_OF = {
    **dict.fromkeys(("home", "food", "call", "gait", "pride", "talent", "rival"), "fact"),
    **dict.fromkeys(("he", "him", "his", "a", "s", "were", "them", "past"), "agreement"),
    **dict.fromkeys(("left", "ordinal"), "count"),
    "moral": "moral",
}


def story_rules(world_size: int) -> dict[str, tuple[Option, ...]]:
    """The rules of all fables in a world with this many animals."""
    return {**read_rules(STORY), **read_rules(STORYLINES), **tables(world_size)}


class Fables:
    """The distribution of fables in a world of `world_size` animals.

    `rules` replaces the story (tests use smaller ones). Raises ConfigError for an impossible world_size.
    """

    def __init__(self, world_size: int, rules: Rules | None = None) -> None:
        rules = story_rules(world_size) if rules is None else rules
        self.world_size = world_size
        self.grammar = Grammar(rules, constants={"moral": MORALS})
        self._skills = SkillReader(self.grammar, rules, _SKILL_OF)

    def write(self, rng: random.Random) -> str:
        """Draw a fable."""
        return self.grammar.derive(rng.random)[0]

    def log_probability(self, text: str) -> float:
        """Natural logarithm of the probability of this text (nats); minus infinity if it is not a fable."""
        return self.grammar.log_probability(text)

    def next_character_distribution(self, prefix: str) -> dict[str, float]:
        """p(next character | prefix), exactly; "" is the end of the fable; {} if no fable begins like this."""
        return continuations.next_character_distribution(self.grammar, prefix)

    def spans(self, text: str) -> tuple[Span, ...]:
        """The skills of a fable, by reading it. Raises DataError if the text is not a fable."""
        return self._skills.spans(self.read(text))

    def stories(self) -> Iterator[tuple[str, float]]:
        """Every fable with its probability. Only for small `rules`: a real world has far too many."""
        return self.grammar.stories()

    @property
    def entropy_nats(self) -> float:
        """Entropy of one fable, exactly, by dynamic programming over the grammar (see `entropy`)."""
        return self._mass.entropy

    @property
    def n_fables(self) -> int:
        """How many different fables there are."""
        return self._mass.number

    def read(self, text: str) -> list[tuple[Fork, int]]:
        """The choices that write this text. Raises DataError for a text that is no fable."""
        drawn = self.grammar.read(text)
        if drawn is None:
            raise DataError("fables", f"{text[:40]!r} is not a fable", "give a text that the grammar can write")
        return drawn

    @cached_property
    def _mass(self) -> Mass:
        return whole_mass(self.grammar)

"""Fables: a distribution over short stories, to sample from, compute with and analyse.

Each character takes a skill to predict. There is one rule: it needs a skill if, for a reader without that skill, it
could have been a different one.
    choice     more than one next character is possible: entropy, which no skill removes
    recall     the text repeats a name or thing, and another one that could have been drawn differs in this character;
               or, in the same way, the text tells
    fact       knowledge about an animal,
    agreement  he/she, was/were, a/an,
    count      small arithmetic over what was said,
    moral      which lesson fits what happened
    spelling   all other characters: the rest of a word or a fixed phrase (spaces and punctuation included)
So in "Hazel", said earlier, "H" (it might be "Bramble") and "a" (it might be "Hugo") are recall, and "zel" is spelling.
The tables of fables.rules name the skill of what they remember.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from pellucid.errors import DataError
from pellucid.languages.fables.reading import Reading, Told, ToldReader, examine
from pellucid.languages.fables.world import MORALS, skill_of_hole, story_rules
from pellucid.languages.grammar.grammar import Grammar, Rules
from pellucid.languages.grammar.notation import Choice, Hole, Option
from pellucid.languages.grammar.skills import SkillReader
from pellucid.languages.grammar.texts import GrammarTexts
from pellucid.languages.language import SPELLING

# Part of every corpus's identity: raise it whenever a fable or its probability changes.
GRAMMAR_VERSION = 2

SKILLS = ("choice", SPELLING, "agreement", "recall", "fact", "count", "moral")


class Fables(GrammarTexts):
    """The distribution of fables in a world of `world_size` animals.

    `rules` replaces the story (tests use smaller ones). Raises ConfigError for an impossible world_size.
    """

    skills: Sequence[str] = SKILLS
    noun = "fable"

    def __init__(self, world_size: int, rules: Rules | None = None) -> None:
        rules = story_rules(world_size) if rules is None else rules
        self.world_size = world_size
        self.identity = {"type": "fables", "grammar_version": GRAMMAR_VERSION, "world_size": world_size}
        self.grammar = Grammar(rules, constants={"moral": MORALS})
        self.skill_reader = SkillReader(self.grammar, rules, skill_of_hole)
        self._morals: dict[str, Mapping[str, float]] = {}

    def told_by(self, text: str) -> dict[str, Told]:
        """The properties (of PROPERTIES) that a fable, or its beginning, has decided. DataError for other texts."""
        if not self.next_character_distribution(text):
            what = f"{text[:40]!r} is not the beginning of a fable"
            raise DataError("fables", what, "give a text that the grammar can write")
        return self._told_reader.read(self.grammar.read(text)[0])

    def examine(self, text: str) -> Reading:
        """A text judged by the grammar: how far it is a fable, and what it tells up to there. Never fails."""
        return examine(self.grammar, self.skill_reader, self._told_reader, text)

    def settled_at(self, text: str, animal: str | None, moral: str | None) -> int | None:
        """The number of characters after which it is certain whether a text tells of these; None if that stays open."""
        return self._told_reader.settled_at(self.grammar.read(text)[0], animal, moral)

    @cached_property
    def moral_probabilities(self) -> dict[str, float]:
        """The exact probability of each moral."""
        return {MORALS[name]: p for name, p in self.morals_of("fable").items()}

    def morals_of(self, rule: str) -> Mapping[str, float]:
        """The probability of each moral, by name, given this rule; {} if the rule leads to no moral."""
        if rule not in self._morals:
            options = self.grammar.written(rule)
            total = math.fsum(option.weight for option in options)
            self._morals[rule] = probabilities = dict[str, float]()
            for option in options:
                for name, p in self.morals_after(option).items():
                    probabilities[name] = probabilities.get(name, 0.0) + option.weight / total * p
        return self._morals[rule]

    def morals_after(self, option: Option) -> Mapping[str, float]:
        """The probability of each moral given this option. At most one of its parts leads to a moral."""
        for part in option.parts:
            if isinstance(part, Hole) and part.variable == "moral":
                return {part.attribute: 1.0}
            if isinstance(part, Choice) and not part.selector and (morals := self.morals_of(part.rule)):
                return morals
        return {}

    @cached_property
    def _told_reader(self) -> ToldReader:
        return ToldReader(self.grammar)

"""Which skill you need to predict each character of a story.

One rule for all: a character needs a skill if, to a reader without that skill, it could have been a different one.
    choice     more than one next character is possible: entropy, which no skill removes
    recall     the text repeats what was said (a name, a thing), and something else that could have been drawn there
               differs in this character; in the same way, depending on what the text tells,
    fact       knowledge about an animal,
    agreement  he/she, was/were, a/an,
    count      small arithmetic over what was said,
    moral      which lesson fits what happened
    spelling   all other characters: the rest of a word or a fixed phrase (spaces and punctuation included)
So in "Hazel", said earlier, "H" (it might be "Bramble") and "a" (it might be "Hugo") are recall, and "zel" is spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pellucid.corpora.corpus import SPELLING
from pellucid.corpora.fables.grammar import Fork, Grammar
from pellucid.corpora.fables.notation import Choice, Hole, Option, capitalize

SKILLS = ("choice", SPELLING, "agreement", "recall", "fact", "count", "moral")


@dataclass(frozen=True)
class Span:
    """Characters start..end (end excluded) of a fable, all of which need the same skill."""

    start: int
    end: int
    skill: str


def differing(text: str, alternatives: Iterable[str]) -> list[bool]:
    """For each character of `text`, whether an alternative with the same beginning continues differently."""
    left = [alternative for alternative in alternatives if alternative != text]
    flags = []
    for i, character in enumerate(text):
        flags.append(any(other[i : i + 1] != character for other in left))
        left = [other for other in left if other[i : i + 1] == character]
    return flags


class SkillReader:
    """Finds the skill of each character. `skill_of` has those of attributes and variables; the others are recall."""

    def __init__(self, grammar: Grammar, rules: Mapping[str, Sequence[Option]], skill_of: Mapping[str, str]):
        self._grammar = grammar
        self._skill_of = skill_of
        self._values = values_of_attributes(rules, grammar)
        self._of_holes: dict[tuple[Hole, str], list[str]] = {}

    def spans(self, drawn: Sequence[tuple[Fork, int]]) -> tuple[Span, ...]:
        """The spans of the story that these choices write; they cover every character once."""
        skills: list[str] = []
        for fork, index in drawn:
            flags = differing(fork.opening(index), [fork.opening(i) for i in fork.allowed()])
            start = len(skills)
            pieces, _ = self._grammar.advance(*fork.take(index))
            for text, hole in pieces:
                skills += self._of_hole(hole, text) if hole else [SPELLING] * len(text)
            for i, is_choice in enumerate(flags, start):
                if is_choice:
                    skills[i] = "choice"
        return _runs(skills)

    def _of_hole(self, hole: Hole, text: str) -> list[str]:
        if (hole, text) not in self._of_holes:
            skill = self._skill_of.get(hole.variable) or self._skill_of.get(hole.attribute, "recall")
            values = self._values[hole.variable, hole.attribute]
            alternatives = [capitalize(value) if hole.capital else value for value in values]
            flags = differing(text, alternatives)
            self._of_holes[hole, text] = [skill if flag else SPELLING for flag in flags]
        return self._of_holes[hole, text]


def values_of_attributes(rules: Mapping[str, Sequence[Option]], grammar: Grammar) -> dict[tuple[str, str], set[str]]:
    """All values that each attribute of each variable can have."""
    parts = {part for options in rules.values() for option in options for part in option.parts}
    sources = {(part.variable, part.rule, part.selector is not None) for part in parts if isinstance(part, Choice)}
    values: dict[tuple[str, str], set[str]] = {}
    for variable, name, is_family in sources:
        if not variable:
            continue
        family = [rule for rule in rules if rule.startswith(name)] if is_family else [name]
        for rule in family:
            for option in rules[rule]:
                for attribute, value in option.attributes.items():
                    values.setdefault((variable, attribute), set()).add(value)
    for variable, attributes in grammar.constants.items():
        for attribute in attributes:
            values[variable, attribute] = set(attributes.values())
    return values


def _runs(skills: Sequence[str]) -> tuple[Span, ...]:
    edges = [0, *(i for i in range(1, len(skills)) if skills[i] != skills[i - 1]), len(skills)]
    return tuple(Span(start, end, skills[start]) for start, end in pairwise(edges) if end > start)

"""The skill that each character of a story takes to predict.

There is one rule: a character needs a skill if, for a reader without that skill, it could have been a different one.
    choice     more than one next character is possible: entropy, which no skill removes
    recall     the text repeats a name or thing, and another one that could have been drawn differs in this character;
               or, in the same way, the text tells
    fact       knowledge about an animal,
    agreement  he/she, was/were, a/an,
    count      small arithmetic over what was said,
    moral      which lesson fits what happened
    spelling   all other characters: the rest of a word or a fixed phrase (spaces and punctuation included)
So in "Hazel", said earlier, "H" (it might be "Bramble") and "a" (it might be "Hugo") are recall, and "zel" is spelling.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from pellucid.languages.fables.grammar import Fork, Grammar, Rules
from pellucid.languages.fables.notation import Choice, Hole, capitalize
from pellucid.languages.known import SPELLING

SKILLS = ("choice", SPELLING, "agreement", "recall", "fact", "count", "moral")
INSTRUCTION = "instruction"  # for choices that an instruction has decided (see `about`)

# The skill of an attribute (of anything) or of a variable; everything else is recall.
_SKILL_OF = {
    **dict.fromkeys(("home", "food", "call", "gait", "pride", "talent", "rival"), "fact"),
    **dict.fromkeys(("he", "him", "his", "a", "s", "were", "them", "past"), "agreement"),
    **dict.fromkeys(("left", "ordinal"), "count"),
    "moral": "moral",
}


def differing(text: str, alternatives: Iterable[str]) -> list[bool]:
    """Flags for each character of `text`: does an alternative with the same beginning continue differently?"""
    left = [alternative for alternative in alternatives if alternative != text]
    flags = []
    for i, character in enumerate(text):
        flags.append(any(other[i : i + 1] != character for other in left))
        left = [other for other in left if other[i : i + 1] == character]
    return flags


class SkillReader:
    """Finds the skill of each character of a story."""

    def __init__(self, grammar: Grammar, rules: Rules) -> None:
        self._values = values_of_attributes(rules, grammar)
        self._of_holes: dict[tuple[Hole, str], list[str]] = {}

    def skills(self, drawn: Sequence[tuple[Fork, int]]) -> list[str]:
        """The skill of each character of the story that these choices write."""
        return [skill for fork, index in drawn for skill in self.of_option(fork, index)]

    def of_option(self, fork: Fork, index: int) -> list[str]:
        """The skill of each character that an option writes, up to the next choice."""
        flags = differing(fork.write(index)[0], [fork.write(i)[0] for i in fork.allowed()])
        skills_of_pieces = [
            self._of_hole(hole, text) if hole else [SPELLING] * len(text) for text, hole in fork.write_pieces(index)[0]
        ]
        skills = chain.from_iterable(skills_of_pieces)
        return ["choice" if flag else skill for flag, skill in zip(flags, skills, strict=True)]

    def _of_hole(self, hole: Hole, text: str) -> list[str]:
        if (hole, text) not in self._of_holes:
            skill = _SKILL_OF.get(hole.variable) or _SKILL_OF.get(hole.attribute, "recall")
            values = self._values[hole.variable, hole.attribute]
            flags = differing(text, [capitalize(value) if hole.capital else value for value in values])
            self._of_holes[hole, text] = [skill if flag else SPELLING for flag in flags]
        return self._of_holes[hole, text]


def values_of_attributes(rules: Rules, grammar: Grammar) -> dict[tuple[str, str], set[str]]:
    """All values that each attribute of each variable can have."""
    values = {(name, key): set(constant.values()) for name, constant in grammar.constants.items() for key in constant}
    parts = {part for options in rules.values() for option in options for part in option.parts}
    for part in parts:
        if isinstance(part, Choice) and part.variable:
            family = [name for name in rules if name.startswith(part.rule)] if part.selector else [part.rule]
            for option in (option for name in family for option in rules[name]):
                for attribute, value in option.attributes.items():
                    values.setdefault((part.variable, attribute), set()).add(value)
    return values

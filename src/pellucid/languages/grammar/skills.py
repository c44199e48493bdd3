"""The skill that each character of a text takes to predict.

A character needs a skill if, for a reader without that skill, it could have been a different one. Where more than one
next character is possible, it takes a choice: entropy, which no skill removes. In a hole it takes the skill of the hole
where another text that could fill it differs; all the rest is spelling.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from pellucid.languages.grammar.grammar import Fork, Grammar, Rules
from pellucid.languages.grammar.notation import Choice, Hole, capitalize, family
from pellucid.languages.language import SPELLING

CHOICE = "choice"


def differing(text: str, alternatives: Iterable[str]) -> list[bool]:
    """Flags for each character of `text`: does an alternative with the same beginning continue differently?"""
    left = [alternative for alternative in alternatives if alternative != text]
    flags = []
    for i, character in enumerate(text):
        flags.append(any(other[i : i + 1] != character for other in left))
        left = [other for other in left if other[i : i + 1] == character]
    return flags


class SkillReader:
    """Finds the skill of each character of a story.

    skill_of_hole: what it takes to know the text of a hole. skill_of_rule: what the choices of a rule are called,
    if not "choice".
    """

    def __init__(
        self,
        grammar: Grammar,
        rules: Rules,
        skill_of_hole: Callable[[Hole], str],
        skill_of_rule: Mapping[str, str] | None = None,
    ) -> None:
        self._skill_of_hole, self._skill_of_rule = skill_of_hole, skill_of_rule or {}
        self._plain = grammar.plain
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
        choice = self._skill_of_rule.get(self._plain(fork.rule.name), CHOICE)
        return [choice if flag else skill for flag, skill in zip(flags, skills, strict=True)]

    def _of_hole(self, hole: Hole, text: str) -> list[str]:
        if (hole, text) not in self._of_holes:
            skill = self._skill_of_hole(hole)
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
            names = family(part, rules) if part.selector else [part.rule]
            for option in (option for name in names for option in grammar.written(name)):
                for attribute, value in option.attributes.items():
                    values.setdefault((part.variable, attribute), set()).add(value)
    return values

"""Reading any text, such as a model's, by the grammar: where its first fault is, and what it tells up to there."""

from collections.abc import Mapping
from typing import NamedTuple

from pellucid.languages.fables.told import ToldReader
from pellucid.languages.grammar.grammar import Grammar
from pellucid.languages.grammar.skills import SkillReader
from pellucid.languages.language import SPELLING


class Reading(NamedTuple):
    """The grammar's judgement of a text.

    whole: it is a complete fable. broken_at: the position of the first impossible character; None if there is none, so
    that the text is complete or merely unfinished. broken_by: the skill that the right character would have needed.
    told: the properties told before it (see `told.PROPERTIES`).
    """

    whole: bool
    broken_at: int | None
    broken_by: str | None
    told: Mapping[str, str]


def examine(grammar: Grammar, skill_reader: SkillReader, told_reader: ToldReader, text: str) -> Reading:
    """Read a text as far as possible."""
    drawn, end, fork = grammar.read(text)
    told = told_reader.known(drawn)
    if fork is None:  # a fable, perhaps with more text after it
        return Reading(True, None, None, told) if end == len(text) else Reading(False, end, SPELLING, told)
    fitting = {i: _length_in_common(fork.write(i)[0], text[end:]) for i in fork.allowed()}
    nearest = max(fitting, key=lambda i: fitting[i])
    broken_at = end + fitting[nearest]
    if broken_at == len(text):
        return Reading(False, None, None, told)
    return Reading(False, broken_at, skill_reader.of_option(fork, nearest)[fitting[nearest]], told)


def _length_in_common(first: str, second: str) -> int:
    """The length of the longest common prefix."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))

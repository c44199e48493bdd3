"""Reading a text that may be no fable, such as one that a model wrote: where its first fault is, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pellucid.corpora.corpus import SPELLING
from pellucid.corpora.fables.grammar import Grammar
from pellucid.corpora.fables.skills import SkillReader
from pellucid.corpora.fables.told import ToldReader


class Reading(NamedTuple):
    """What the grammar makes of a text.

    whole: it is a fable to the last character. broken_at: the place of the first character with which no fable can go
    on; None if there is none, so that the text is whole or merely unfinished. broken_by: the skill that the right
    character would have needed. told: what the choices read before it tell (see `told.PROPERTIES`).
    """

    whole: bool
    broken_at: int | None
    broken_by: str | None
    told: Mapping[str, str]


def examine(grammar: Grammar, skill_reader: SkillReader, told_reader: ToldReader, text: str) -> Reading:
    """Reads a text as far as it can be read."""
    drawn, end, fork = grammar.read(text)
    told = told_reader.known(drawn)
    if fork is None:  # a fable; perhaps the text goes on
        return Reading(True, None, None, told) if end == len(text) else Reading(False, end, SPELLING, told)
    fitting = {i: _length_in_common(fork.write(i)[0], text[end:]) for i in fork.allowed()}
    nearest = max(fitting, key=lambda i: fitting[i])
    broken_at = end + fitting[nearest]
    if broken_at == len(text):
        return Reading(False, None, None, told)
    return Reading(False, broken_at, skill_reader.of_option(fork, nearest)[fitting[nearest]], told)


def _length_in_common(first: str, second: str) -> int:
    """How many characters two texts have in common at their beginnings."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))

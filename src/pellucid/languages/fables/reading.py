"""Reading any text by the grammar: what it tells (animals, plot, moral), where it decides that, and where it breaks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pellucid.languages.grammar.grammar import Fork, Grammar
from pellucid.languages.grammar.notation import Choice, Hole, Part
from pellucid.languages.grammar.skills import SkillReader, differing
from pellucid.languages.language import SPELLING

# The variable and attribute of each property in the state of a story.
_IN_STATE = {
    "animal": ("hero", "kind"),
    "pronoun": ("hero", "he"),
    "trait": ("trait", "name"),
    "other": ("other", "kind"),  # the animal that the hero meets
}
PROPERTIES = (*_IN_STATE, "plot", "moral")


class Told(NamedTuple):
    """The value of a property, and the number of characters after which it is decided."""

    value: str
    decided_at: int


class Reading(NamedTuple):
    """The grammar's judgement of a text.

    whole: it is a complete fable. broken_at: the position of the first impossible character; None if there is none, so
    that the text is complete or merely unfinished. broken_by: the skill that the right character would have needed.
    told: the properties told before it (see PROPERTIES).
    """

    whole: bool
    broken_at: int | None
    broken_by: str | None
    told: Mapping[str, str]


class ToldReader:
    """Finds the properties of a story. Plot and moral are known once no other moral is possible."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._morals_below: dict[str, frozenset[str]] = {}
        self._plot_of: dict[str, str] = {}
        for plot in chain.from_iterable(option.parts for option in grammar.written("storyline")):
            self._plot_of |= dict.fromkeys(self._in(plot), getattr(plot, "rule", ""))

    def read(self, drawn: Sequence[tuple[Fork, int]]) -> dict[str, Told]:
        """The properties that a story, or its beginning, has decided after these choices, and where."""
        told: dict[str, Told] = {}
        start = 0
        for fork, index in drawn:
            text, after = fork.write(index)
            values = self._known_after(fork, index, after)
            if values.keys() - told.keys():
                decided_at = start + _characters_that_decide(fork, index)
                told = {**{name: Told(value, decided_at) for name, value in values.items()}, **told}
            start += len(text)
        return told

    def settled_at(self, drawn: Sequence[tuple[Fork, int]], animal: str | None, moral: str | None) -> int | None:
        """The number of characters after which it is certain whether the story has this animal and moral (None: any).

        Either both are decided, or one of them is impossible by then. None if it is still open.
        """
        start = 0
        for fork, index in drawn:
            text, after = fork.write(index)
            hero = (after.state if after else fork.state).get("hero", {}).get("kind")
            morals = self._morals_after(fork, index, after)
            animal_told = animal is None or hero == animal
            moral_told = moral is None or morals == {moral}
            cannot_be = (hero is not None and not animal_told) or (moral is not None and moral not in morals)
            if cannot_be or (animal_told and moral_told):
                return start + _characters_that_decide(fork, index)
            start += len(text)
        return None

    def known(self, drawn: Sequence[tuple[Fork, int]]) -> dict[str, str]:
        """The values that `read` finds, without their positions."""
        if not drawn:
            return {}
        fork, index = drawn[-1]
        return self._known_after(fork, index, fork.write(index)[1])

    def _known_after(self, fork: Fork, index: int, after: Fork | None) -> dict[str, str]:
        state = after.state if after else fork.state
        values = {name: state.get(variable, {}).get(attribute) for name, (variable, attribute) in _IN_STATE.items()}
        morals = self._morals_after(fork, index, after)
        values |= {"moral": _single(morals), "plot": _single({self._plot_of[moral] for moral in morals})}
        return {name: value for name, value in values.items() if value is not None}

    def _morals_after(self, fork: Fork, index: int, after: Fork | None) -> frozenset[str]:
        """The morals that are still possible."""
        holes = [hole for _, hole in fork.write_pieces(index)[0] if hole]
        return self._among([*holes, *(after.ahead() if after else ())])

    def _among(self, parts: Iterable[Part]) -> frozenset[str]:
        """The morals that these parts may write."""
        return frozenset().union(*map(self._in, parts))

    def _in(self, part: Part) -> frozenset[str]:
        if isinstance(part, Hole):
            return frozenset([part.attribute] if part.variable == "moral" else [])
        if not isinstance(part, Choice) or part.selector:  # a selector leads to a table, without a moral
            return frozenset()
        if part.rule not in self._morals_below:
            options = self._grammar.rule(part.rule).options
            self._morals_below[part.rule] = self._among(inner for option in options for inner in option.parts)
        return self._morals_below[part.rule]


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


def _characters_that_decide(fork: Fork, index: int) -> int:
    """The number of characters of an option after which it is clear that it was drawn."""
    differs = differing(fork.write(index)[0], [fork.write(i)[0] for i in fork.allowed()])
    return max((i + 1 for i, differs_here in enumerate(differs) if differs_here), default=0)


def _single(values: Collection[str]) -> str | None:
    """The only value; None if there are several."""
    return next(iter(values)) if len(values) == 1 else None


def _length_in_common(first: str, second: str) -> int:
    """The length of the longest common prefix."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))

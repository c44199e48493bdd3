"""What a fable tells of: its animals, its plot, its moral. And how much of the text one must read to know each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from pellucid.corpora.fables.grammar import Fork, Grammar
from pellucid.corpora.fables.notation import Choice, Hole, Part
from pellucid.corpora.fables.skills import differing

# Where the state of a story keeps a property: a variable and its attribute.
_IN_STATE = {
    "animal": ("hero", "kind"),
    "pronoun": ("hero", "he"),
    "trait": ("trait", "name"),
    "other": ("other", "kind"),  # the animal that the hero meets
}
PROPERTIES = (*_IN_STATE, "plot", "moral")


class Told(NamedTuple):
    """The value of a property, and after how many characters of the text the choice that decides it has been read."""

    value: str
    decided_at: int


class ToldReader:
    """Finds what a story tells of. Plot and moral are known once no other moral can follow."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._morals_below: dict[str, frozenset[str]] = {}
        self._plot_of: dict[str, str] = {}
        for plot in chain.from_iterable(option.parts for option in grammar.written("storyline")):
            self._plot_of |= dict.fromkeys(self._in(plot), getattr(plot, "rule", ""))

    def read(self, drawn: Sequence[tuple[Fork, int]]) -> dict[str, Told]:
        """The properties that a story, or its beginning, has told after these choices, and where it told them."""
        found: dict[str, Told] = {}
        start = 0
        for fork, index in drawn:
            text, after = fork.write(index)
            known = self._known_after(fork, index, after)
            if known.keys() - found.keys():
                decided_at = start + _characters_that_decide(fork, index)
                found = {**{name: Told(value, decided_at) for name, value in known.items()}, **found}
            start += len(text)
        return found

    def settled_at(self, drawn: Sequence[tuple[Fork, int]], animal: str | None, moral: str | None) -> int | None:
        """After how many characters it is settled whether the story tells of this animal and this moral (None: any).

        Either both have been told, or one of them no longer can be. None if neither is so yet.
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
        """The values that `read` finds, without their places."""
        if not drawn:
            return {}
        fork, index = drawn[-1]
        return self._known_after(fork, index, fork.write(index)[1])

    def _known_after(self, fork: Fork, index: int, after: Fork | None) -> dict[str, str]:
        state = after.state if after else fork.state
        known = {name: state.get(variable, {}).get(attribute) for name, (variable, attribute) in _IN_STATE.items()}
        morals = self._morals_after(fork, index, after)
        known |= {"moral": _single(morals), "plot": _single({self._plot_of[moral] for moral in morals})}
        return {name: value for name, value in known.items() if value is not None}

    def _morals_after(self, fork: Fork, index: int, after: Fork | None) -> frozenset[str]:
        """The morals that the story may still have."""
        holes = [hole for _, hole in fork.write_pieces(index)[0] if hole]
        return self._among([*holes, *(after.ahead() if after else ())])

    def _among(self, parts: Iterable[Part]) -> frozenset[str]:
        """The morals that may be written by these parts."""
        return frozenset().union(*map(self._in, parts))

    def _in(self, part: Part) -> frozenset[str]:
        if isinstance(part, Hole):
            return frozenset([part.attribute] if part.variable == "moral" else [])
        if not isinstance(part, Choice) or part.selector:  # what is selected by a word are tables, without a moral
            return frozenset()
        if part.rule not in self._morals_below:
            options = self._grammar.rule(part.rule).options
            self._morals_below[part.rule] = self._among(each for option in options for each in option.parts)
        return self._morals_below[part.rule]


def _characters_that_decide(fork: Fork, index: int) -> int:
    """How many characters of an option must be read to know that it was drawn."""
    differs = differing(fork.write(index)[0], [fork.write(i)[0] for i in fork.allowed()])
    return max((i + 1 for i, differs_here in enumerate(differs) if differs_here), default=0)


def _single(values: Collection[str]) -> str | None:
    """The value, if there is but one."""
    return next(iter(values)) if len(values) == 1 else None

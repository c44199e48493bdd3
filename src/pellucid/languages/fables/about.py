"""Fables conditioned on a hero, a moral, or both.

To condition a grammar is to change some of its weights. The hero is drawn from one table, of which only the requested
animals are kept. The moral follows from the storyline and its outcome: there each option's weight is multiplied by
P(moral | option), by Bayes' rule. The two are independent, so that

    p(fable | kind, moral) = p(fable) / (P(kind) P(moral))   for the fables about them; 0 for all others.

So the result is a grammar again, and everything can be computed as for all fables.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from pellucid.errors import DataError
from pellucid.languages.fables.distribution import SKILLS, Fables
from pellucid.languages.grammar.entropy import Inside
from pellucid.languages.grammar.notation import Choice, Option

INSTRUCTION = "instruction"  # the skill of choices that the condition has decided
HERO = Choice("animal", variable="hero")
Changes = dict[str, Sequence[Option]]


class FablesAbout(Fables):
    """The fables whose hero is one of `animals` and whose moral is one of `morals`; None for no condition.

    All these animals, and all these morals, are equally probable; given both, fables are as probable as in `fables`.
    share: the probability of the condition under `fables`. Raises DataError if it is impossible.
    """

    skills = (*SKILLS, INSTRUCTION)

    def __init__(
        self, fables: Fables, animals: Collection[str] | None = None, morals: Collection[str] | None = None
    ) -> None:
        of_hero, p_hero = hero_changes(fables, animals) if animals is not None else ({}, 1.0)
        of_moral, p_moral = moral_changes(fables, morals) if morals is not None else ({}, 1.0)
        assert not of_hero.keys() & of_moral.keys(), "a rule both draws the hero and leads to the moral"
        self.world_size, self.share = fables.world_size, p_hero * p_moral
        self._all, self._changed = fables, {*of_hero, *of_moral}
        self.grammar = fables.grammar.changed({**of_hero, **of_moral})
        self.skill_reader = fables.skill_reader  # facts are still compared with those of all animals
        self._morals = {}

    def skills_of(self, text: str) -> list[int]:
        """The skill of each character, as for all fables; but choices that the condition decides are `instruction`."""
        choice, instruction = SKILLS.index("choice"), self.skills.index(INSTRUCTION)
        pairs = zip(self._all.skills_of(text), super().skills_of(text), strict=True)
        return [instruction if in_all == choice != skill else skill for in_all, skill in pairs]

    @cached_property
    def inside(self) -> Inside:
        """The masses of all parts of a fable; most are shared with all fables."""
        inside_of_all = self._all.inside
        assert inside_of_all.whole, "computed once, then shared"
        return inside_of_all.of_changed(self.grammar, self._changed)


def hero_changes(fables: Fables, animals: Collection[str]) -> tuple[Changes, float]:
    """The changed rules that make these animals equally probable heroes; and P(the hero is one of them)."""
    table, kinds = fables.grammar.rule(HERO.rule), set(animals)
    options = [option for option in table.options if option.attributes["kind"] in kinds]
    if len(options) < len(kinds) or not options:
        unknown = sorted(kinds - {option.attributes["kind"] for option in options})
        raise DataError("fables", f"no hero is of the kind {unknown}", "name animals of this world")
    its_choice = replace(HERO, rule="the hero's animal")
    changes: Changes = {its_choice.rule: [replace(option, weight=1.0) for option in options]}
    for name, written in fables.grammar.source.items():
        if any(HERO in option.parts for option in written):
            changes[name] = [
                replace(option, parts=tuple(its_choice if part == HERO else part for part in option.parts))
                for option in written
            ]
    return changes, math.fsum(option.weight for option in options) / table.total


def moral_changes(fables: Fables, morals: Collection[str]) -> tuple[Changes, float]:
    """The changed rules that make these morals equally probable; and P(the moral is one of them).

    An option's weight is multiplied by Σ P(moral | option) / P(moral) over these morals.
    """
    p_of = fables.morals_of(fables.grammar.start.rule)
    if not morals or not p_of.keys() >= set(morals):
        raise DataError("fables", f"no fable has the moral {sorted(set(morals) - p_of.keys())}", "name others")
    changes: Changes = {}
    for name, written in fables.grammar.source.items():
        after = [fables.morals_after(option) for option in written]
        factors = [math.fsum(p / p_of[moral] for moral, p in each.items() if moral in morals) for each in after]
        if len(set(factors)) > 1:  # else the rule does not affect the moral
            changes[name] = [
                replace(option, weight=option.weight * factor)
                for option, factor in zip(written, factors, strict=True)
                if factor
            ]
    return changes, math.fsum(p_of[moral] for moral in set(morals))

"""Fables about what was asked for: a certain hero, a certain moral, or both.

To condition a grammar is to change some of its weights. The hero is drawn from one table, which keeps the animals that
are asked for. The moral follows from the storyline and its outcome: on the way there, each option's weight is
multiplied by P(moral | option), by Bayes' rule. Neither depends on the other, so that

    p(fable | kind, moral) = p(fable) / (P(kind) P(moral))   for the fables about them; 0 for all others.

So a condition gives a grammar again, with which everything can be computed that can be for all fables.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from pellucid.corpora.fables.distribution import Fables
from pellucid.corpora.fables.entropy import Inside
from pellucid.corpora.fables.notation import Choice, Option
from pellucid.corpora.fables.skills import INSTRUCTION, SKILLS
from pellucid.errors import DataError

HERO = Choice("animal", variable="hero")
Changes = dict[str, Sequence[Option]]


class FablesAbout(Fables):
    """The fables whose hero is one of `animals` and whose moral is one of `morals`; None: any, as often as ever.

    Of several, each is as probable as each other; given one of each, fables are as probable as they are among `fables`.
    share: of all `fables`, the share that are such. Raises DataError if there are none.
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
        self.skill_reader = fables.skill_reader  # what else the hero might have eaten is still what any animal eats
        self._morals = {}

    def skills_of(self, text: str) -> list[int]:
        """As for all fables; but what would be a choice there and is none here, the instruction has told."""
        choice, instruction = SKILLS.index("choice"), self.skills.index(INSTRUCTION)
        pairs = zip(self._all.skills_of(text), super().skills_of(text), strict=True)
        return [instruction if anywhere == choice != here else here for anywhere, here in pairs]

    @cached_property
    def inside(self) -> Inside:
        """The masses of all parts of a fable; most are those of all fables."""
        whole_language = self._all.inside
        assert whole_language.whole, "computed once, then shared"
        return whole_language.of_changed(self.grammar, self._changed)


def hero_changes(fables: Fables, animals: Collection[str]) -> tuple[Changes, float]:
    """The rules with which one of these animals is the hero, each as often; and P(the hero is one of them)."""
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
    """The rules with which fables end with one of these morals, each as often; and P(a fable ends with one of them).

    An option's weight is multiplied by Σ P(moral | option) / P(moral) over these morals.
    """
    p_of = fables.morals_of(fables.grammar.start.rule)
    if not morals or not p_of.keys() >= set(morals):
        raise DataError("fables", f"no fable has the moral {sorted(set(morals) - p_of.keys())}", "name others")
    changes: Changes = {}
    for name, written in fables.grammar.source.items():
        after = [fables.morals_after(option) for option in written]
        factors = [math.fsum(p / p_of[moral] for moral, p in each.items() if moral in morals) for each in after]
        if len(set(factors)) > 1:  # else the rule decides nothing about the moral
            changes[name] = [
                replace(option, weight=option.weight * factor)
                for option, factor in zip(written, factors, strict=True)
                if factor
            ]
    return changes, math.fsum(p_of[moral] for moral in set(morals))

"""The exact entropy of a grammar, without sampling: the chain rule and dynamic programming.

The entropy of a story is the sum over its choices of the expected entropy of each. There are too many stories to sum
over, so we sum over states: the part of what was drawn that the weights of later choices depend on. This is the inside
algorithm in the expectation semiring (Eisner 2002). Each part of the grammar has

    probability  p              of all ways to write it
    entropy      sum of -p ln p over them, in nats
    number       of these ways
Parts in sequence multiply, alternatives add.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from pellucid.languages.grammar.grammar import Fork, Grammar
from pellucid.languages.grammar.notation import Choice, Option


class Mass(NamedTuple):
    """The total probability, entropy (nats) and number of a set of ways to write something."""

    probability: float
    entropy: float
    number: int

    def then(self, other: Mass) -> Mass:
        return Mass(
            self.probability * other.probability,
            self.probability * other.entropy + other.probability * self.entropy,
            self.number * other.number,
        )

    def either(self, other: Mass) -> Mass:
        return Mass(self.probability + other.probability, self.entropy + other.entropy, self.number + other.number)


NOTHING = Mass(0.0, 0.0, 0)
# Key: an attribute of a variable. Keys: those that later weights depend on. Known: their known values.
Key = tuple[str, str]
Keys = frozenset[Key]
Known = frozenset[tuple[Key, str]]
Masses = dict[Known, Mass]
# An option: the mass of everything in it that does not depend on the state, and its other choices in order.
Plan = tuple[Mass, list[tuple[Choice, Keys]]]
NO_KEYS: Keys = frozenset()
UNKNOWN: Known = frozenset()


class Inside:
    """The masses of all parts of a grammar; each is computed once."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._needs: dict[str, Keys] = {}
        self._binds: dict[str, frozenset[str]] = {}
        self._of_choice: dict[tuple[Choice, Known, Keys], Masses] = {}
        self._plans: dict[tuple[str, Keys], list[Plan]] = {}

    @property
    def whole(self) -> Mass:
        """Probability (1), entropy in nats and number of all the stories of the grammar."""
        return self.of_choice(self._grammar.start, UNKNOWN, NO_KEYS)[UNKNOWN]

    def of_changed(self, grammar: Grammar, names: Collection[str]) -> Inside:
        """The masses of a grammar in which these rules have other options; all masses that do not use them are kept."""
        touched, plain = self._grammar.above(names), self._grammar.plain
        other = Inside(grammar)
        other._needs = {rule: needs for rule, needs in self._needs.items() if plain(rule) not in touched}
        other._binds = {rule: binds for rule, binds in self._binds.items() if plain(rule) not in touched}
        other._of_choice = {key: value for key, value in self._of_choice.items() if plain(key[0].rule) not in touched}
        other._plans = {key: value for key, value in self._plans.items() if plain(key[0]) not in touched}
        return other

    def of_choice(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """The mass of a choice and everything it writes, for each state of the `live` keys afterwards."""
        known = frozenset(item for item in known if item[0] in self.needs(choice))
        key = (choice, known, live)
        if key not in self._of_choice:
            is_table = choice.selector or choice.without or self._grammar.rule(choice.rule).is_table
            self._of_choice[key] = (self._draw if is_table else self._expand)(choice, known, live)
        return self._of_choice[key]

    def _expand(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """Sum over the options of a rule: the choice of the option, then all its parts."""
        total: Masses = {}
        for constant, steps in self._plans_of(choice.rule, live):
            masses = {known: constant}
            for part, live_after in steps:
                before, masses = masses, {}
                for state, mass in before.items():
                    for learned, inner in self.of_choice(part, state, live_after).items():
                        _add(masses, {_updated(state, learned, live_after): mass.then(inner)})
            _add(total, masses)
        return total

    def _draw(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """Sum over a table, perhaps without one option. Only here do weights depend on what is known."""
        state: dict[str, dict[str, str]] = {}
        for (variable, attribute), value in known:
            state.setdefault(variable, {})[attribute] = value
        fork = Fork(self._grammar, choice, None, state)
        keys = [key for key in live if key[0] == choice.variable]
        if not keys:
            return {UNKNOWN: _entropy_of_table(fork)}
        masses: Masses = {}
        for index in fork.allowed():
            attributes = fork.rule.options[index].attributes
            learned = frozenset((key, attributes[key[1]]) for key in keys if key[1] in attributes)
            _add(masses, {learned: _drawn(fork.probability(index))})
        return masses

    def _plans_of(self, rule: str, live: Keys) -> list[Plan]:
        if (rule, live) not in self._plans:
            options = self._grammar.written(rule)
            total = math.fsum(option.weight for option in options)
            self._plans[rule, live] = [self._plan(option, option.weight / total, live) for option in options]
        return self._plans[rule, live]

    def _plan(self, option: Option, probability: float, live: Keys) -> Plan:
        constant = _drawn(probability)
        steps: list[tuple[Choice, Keys]] = []
        for part in reversed(option.parts):
            if isinstance(part, Choice):
                if self.needs(part) or any(variable in self.binds(part) for variable, _ in live):
                    steps.insert(0, (part, live))
                else:
                    constant = constant.then(self.of_choice(part, UNKNOWN, NO_KEYS)[UNKNOWN])
                live |= self.needs(part)
        return constant, steps

    def needs(self, choice: Choice) -> Keys:
        """The attributes that the weights in a choice, and in everything it writes, depend on."""
        if choice.selector or choice.without:  # a table, which has no choices inside
            return frozenset((hole.variable, hole.attribute) for hole in (choice.selector, choice.without) if hole)
        if choice.rule not in self._needs:
            inner = _choices(self._grammar.written(choice.rule))
            self._needs[choice.rule] = NO_KEYS.union(*(self.needs(part) for part in inner))
        return self._needs[choice.rule]

    def binds(self, choice: Choice) -> frozenset[str]:
        """The variables that a choice, and everything it writes, set."""
        if choice.selector:
            return frozenset({choice.variable})
        if choice.rule not in self._binds:
            inner = _choices(self._grammar.written(choice.rule))
            self._binds[choice.rule] = frozenset().union(*(self.binds(part) for part in inner))
        return self._binds[choice.rule] | {choice.variable}


def _drawn(probability: float) -> Mass:
    return Mass(probability, -probability * math.log(probability), 1)


def _choices(options: Sequence[Option]) -> Iterator[Choice]:
    return (part for option in options for part in option.parts if isinstance(part, Choice))


def _add(total: Masses, masses: Mapping[Known, Mass]) -> None:
    for known, mass in masses.items():
        total[known] = total.get(known, NOTHING).either(mass)


def _updated(before: Known, learned: Known, live: Keys) -> Known:
    return frozenset(item for item in {**dict(before), **dict(learned)}.items() if item[0] in live)


def _entropy_of_table(fork: Fork) -> Mass:
    """The mass of a table: with weights w that sum to W, its entropy is ln W - (sum of w ln w) / W."""
    total, number = fork.rule.weight_logarithms, len(fork.rule.options)
    if fork.excluded is not None:
        weight = fork.rule.weights[fork.excluded]
        total -= weight * math.log(weight)
        number -= 1
    return Mass(1.0, math.log(fork.total) - total / fork.total, number)

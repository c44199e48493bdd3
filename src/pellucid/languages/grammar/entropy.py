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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pellucid.languages.grammar.grammar import Fork, Grammar, State, around, bind, fill
from pellucid.languages.grammar.notation import Choice, Option, family


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
MOST_STEPS = 2_000_000  # some seconds


class TooMuchToRememberError(ValueError):
    """A rule where there are too many states: each thing that is remembered multiplies them by its values."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"more than {MOST_STEPS:,} states at {rule!r}")
        self.rule = rule


class Inside:
    """The masses of all parts of a grammar; each is computed once."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._n_steps = 0
        self._needs: dict[Choice, Keys] = {}
        self._binds: dict[Choice, frozenset[str]] = {}
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
        other._of_choice = {key: value for key, value in self._of_choice.items() if plain(key[0].rule) not in touched}
        other._plans = {key: value for key, value in self._plans.items() if plain(key[0]) not in touched}
        return other

    def of_choice(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """The mass of a choice and everything it writes, for each state of the `live` keys afterwards."""
        needs = self.needs(choice)
        known = frozenset(item for item in known if item[0] in needs)
        if choice.selector:
            rule = choice.rule + fill(choice.selector, self._state(known))
            return self.of_choice(replace(choice, rule=rule, selector=None), known, live)
        key = (choice, known, live)
        if key not in self._of_choice:
            is_table = self._grammar.rule(choice.rule).is_table
            self._of_choice[key] = (self._draw if is_table else self._expand)(choice, known, live)
        return self._of_choice[key]

    def _state(self, known: Known) -> State:
        state = self._grammar.constants
        for (variable, attribute), value in known:
            state = bind(state, variable, {attribute: value})
        return state

    def _expand(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """Sum over the options of a rule: the choice of the option, then all its parts."""
        total: Masses = {}
        for constant, steps in self._plans_of(choice.rule, live):
            masses = {known: constant}
            for part, live_after in steps:
                before, masses = masses, {}
                for state, mass in before.items():
                    learned_masses = self.of_choice(part, state, live_after)
                    self._count(choice.rule, len(learned_masses) * (1 + len(state)))
                    for learned, inner in learned_masses.items():
                        _add(masses, {_updated(state, learned, live_after): mass.then(inner)})
            _add(total, masses)
        return total

    def _count(self, rule: str, steps: int) -> None:
        self._n_steps += steps
        if self._n_steps > MOST_STEPS:
            raise TooMuchToRememberError(rule)

    def _draw(self, choice: Choice, known: Known, live: Keys) -> Masses:
        """Sum over a table, perhaps without one option. Only here do weights depend on what is known."""
        fork = Fork(self._grammar, choice, None, self._state(known))
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
        if choice not in self._needs:
            own = frozenset((hole.variable, hole.attribute) for hole in (choice.selector, choice.without) if hole)
            self._needs[choice] = own.union(*(self.needs(part) for part in self._inside(choice)))
        return self._needs[choice]

    def binds(self, choice: Choice) -> frozenset[str]:
        """The variables that a choice, and everything it writes, set."""
        if choice not in self._binds:
            inner = (self.binds(part) for part in self._inside(choice))
            self._binds[choice] = frozenset({choice.variable}).union(*inner)
        return self._binds[choice]

    def _inside(self, choice: Choice) -> Iterator[Choice]:
        """The choices inside a choice; of a selector, those of all rules that it may select."""
        options = (option for name in family(choice, self._grammar.source) for option in self._grammar.source[name])
        return (part for option in options for part in option.parts if isinstance(part, Choice))


def _drawn(probability: float) -> Mass:
    return Mass(probability, -probability * math.log(probability), 1)


def _add(total: Masses, masses: Mapping[Known, Mass]) -> None:
    for known, mass in masses.items():
        total[known] = total.get(known, NOTHING).either(mass)


def _updated(before: Known, learned: Known, live: Keys) -> Known:
    return frozenset(item for item in {**dict(before), **dict(learned)}.items() if item[0] in live)


def _entropy_of_table(fork: Fork) -> Mass:
    """The mass of a table: with weights w that sum to W, its entropy is ln W - (sum of w ln w) / W."""
    logarithms, number = fork.rule.logarithms, len(fork.rule.options)
    if fork.excluded is None:
        total = logarithms[0][-1]
    else:
        total, number = around(fork.excluded, *logarithms), number - 1
    return Mass(1.0, math.log(fork.total) - total / fork.total, number)

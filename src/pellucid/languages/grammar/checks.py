"""Checks of a grammar from a file. Each mistake, and each limit, is told with its line.

The most important check is that no two options of a rule can begin alike. Otherwise a text could be written in two
ways, and the probability of one way would be less than that of the text. The limits keep rules from taking endless
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, takewhile
from typing import NamedTuple

from pellucid.languages.grammar.notation import (
    Choice,
    Hole,
    Option,
    Part,
    RuleError,
    WrittenRule,
    capitalize,
    family,
    filled,
    fixed_texts,
    join_text,
    read_options,
    used_by,
)

MOST_LEVELS = 100  # rules below rules, which Python follows by recursion
MOST_CHARACTERS = 50_000  # of a text
MOST_VARIABLES = 200
MOST_STEPS = 1_000_000  # of the checks: a second or two
STEPS_OF_OPENING = 5
LEAST_SHARE = 1e-100  # of an option among all that begin as it does, as a product of many shares could become 0
Key = tuple[str, str]  # a variable and an attribute
Needs = dict[Key, tuple[int, Hole]]  # the holes of what must be drawn before, with their lines
Opening = tuple[Part, ...]  # texts and holes before the first choice


class Effect(NamedTuple):
    """The effect of a rule, or of an option, on what is remembered.

    draws: what it certainly draws. columns: the attributes that all options have. length: the most characters and
    choices that it writes.
    """

    needs: Needs
    draws: frozenset[Key]
    columns: frozenset[str]
    length: int


class Checks:
    """Finds what is wrong with rules before they are used.

    longest: a bound of the characters of a text. unused: the rules to which the first one never leads.
    """

    longest: int
    unused: list[WrittenRule]

    def __init__(self, written: list[WrittenRule]) -> None:
        self.fixed = fixed_texts(written)
        self.written = [rule for rule in written if not rule.fixed]
        self.rules = {rule.name: rule for rule in self.written}
        self.options = {rule.name: read_options(rule) for rule in self.written}
        self._n_steps = 0
        self._variables: dict[str, set[str]] = {}  # the rules from which each is drawn
        self._levels: dict[str, int] = {}
        self._effects: dict[str, Effect] = {}
        self._texts_of: dict[Hole, set[str]] = {}
        self._lengths: dict[Hole, int] = {}  # of the longest of these texts

    def check(self) -> None:
        """Raise RuleError for the first mistake."""
        if not self.written:
            raise RuleError(1, "there are no rules", "write some; docs/languages.md shows how")
        for rule in self.written:
            for written, option in zip(rule.options, self.options[rule.name], strict=True):
                if not option.parts:
                    raise RuleError(written.line, "an option without a text", "write one after its weight")
                self._marks(written.line, written.template)
                for part in option.parts:
                    if isinstance(part, Choice):
                        self._choice(written.line, part)
        for rule in self.written:
            self._ends(rule.name, ())
        whole = self._effect(self.written[0].name)
        for line, hole in whole.needs.values():
            fix = "draw it earlier, in every option that leads here"
            raise RuleError(line, f"{hole.variable!r} may not have been drawn yet where {hole} stands", fix)
        self.longest = whole.length
        self.unused = [rule for rule in self.written if rule.name not in self._effects]
        for rule in self.written:
            self._begin_differently(rule, capital=False)
            if rule.name in self._capitals:
                self._begin_differently(rule, capital=True)

    def _count(self, line: int, steps: int = 1) -> None:
        """Count steps of the checks, whose number may double from rule to rule."""
        self._n_steps += steps
        if self._n_steps > MOST_STEPS:
            what = f"up to here there are more than {MOST_STEPS:,} cases to check"
            raise RuleError(line, what, "let fewer options begin with a choice or a hole, or write fewer rules")

    def _marks(self, line: int, template: str) -> None:
        """Every bracket is closed before another opens, and has something in it."""
        opened = ""
        for place, character in enumerate(template):
            if character in "[{" and not (opened == "[" and character == "{"):
                if opened:
                    raise RuleError(line, f"'{opened}' is not closed before {template[place:][:20]!r}", "close it")
                opened = character
            elif character == "]" or (character == "}" and opened != "["):
                if opened != {"]": "[", "}": "{"}[character]:
                    raise RuleError(line, f"{character!r} closes nothing", "open it, or leave it out")
                opened = ""
        if opened:
            raise RuleError(line, f"{opened!r} is not closed", f"add {'}' if opened == '{' else ']'!r}")
        if "[]" in template or "{}" in template:
            raise RuleError(line, "a bracket with nothing in it", "name a rule, or what was drawn")

    def _choice(self, line: int, choice: Choice) -> None:
        if not choice.rule:
            what = f"[{choice.variable}:] names no rule"
            raise RuleError(line, what, "write one after the colon")
        self._count(line, len(self.rules) if choice.selector else 1)
        names = family(choice, self.rules)
        if not names:
            rule = choice.rule.removesuffix("=")
            near = get_close_matches(rule, self.rules, n=1)
            fix = f"did you mean {near[0]!r}?" if near else "write it"
            raise RuleError(line, f"there is no rule {rule!r}", fix)
        if choice.variable:
            self._variable(line, choice.variable, names)
        if choice.without:
            for name in names:
                self._can_leave_out(line, choice, choice.without.attribute, name)

    def _variable(self, line: int, name: str, rules: list[str]) -> None:
        if name in self.fixed:
            raise RuleError(line, f"the fixed texts of {{{name}}} have the name {name!r}, too", "choose another name")
        if name not in self._variables and len(self._variables) == MOST_VARIABLES:
            what = f"{name!r} is one more than the {MOST_VARIABLES} names that can be remembered"
            raise RuleError(line, what, "use again a name that is no longer needed")
        self._variables.setdefault(name, set()).update(rules)

    def _can_leave_out(self, line: int, choice: Choice, attribute: str, name: str) -> None:
        values = [option.attributes.get(attribute) for option in self.options[name]]
        self._count(line, len(values))
        if len(values) < 2:
            raise RuleError(line, f"[{choice.rule}!…] leaves no option", f"give the rule {name!r} another one")
        if None in values or len(set(values)) < len(values):
            what = f"the {attribute!r} after '!' does not tell the options of {name!r} apart"
            raise RuleError(line, what, "name something that is different, and plain text, in each of them")

    def _ends(self, name: str, above: tuple[str, ...]) -> int:
        """The levels of rules from this one down. RuleError if it uses itself: texts could become longer and longer."""
        line = self.rules[name].line
        if name in above:
            way = " → ".join((*above[above.index(name) :], name))
            fix = "let it end: a rule may only use rules that do not lead back to it"
            raise RuleError(line, f"the rule {name!r} uses itself ({way})", fix)
        if len(above) + self._levels.get(name, 1) > MOST_LEVELS:
            what = f"the rule {name!r} is one of more than {MOST_LEVELS} rules, each of which uses the next"
            raise RuleError(line, what, "write some of them into one")
        if name not in self._levels:
            below = dict.fromkeys(used for option in self.options[name] for used in used_by(option, self.rules))
            self._levels[name] = 1 + max((self._ends(used, (*above, name)) for used in below), default=0)
        return self._levels[name]

    def _effect(self, name: str) -> Effect:
        """The effect of a rule. RuleError for a hole that nothing fills, and for a text that is too long."""
        if name not in self._effects:
            each, needs = list[Effect](), Needs()
            for written, option in zip(self.rules[name].options, self.options[name], strict=True):
                each.append(self._effect_of_option(written.line, option, needs))
                if each[-1].length > MOST_CHARACTERS:
                    what = f"a text with this option may have more than {MOST_CHARACTERS:,} characters"
                    raise RuleError(written.line, what, "use shorter texts, or fewer choices")
            self._effects[name] = Effect(
                needs,
                frozenset.intersection(*(effect.draws for effect in each)),
                frozenset.intersection(*(effect.columns for effect in each)),
                max(effect.length for effect in each),
            )
        return self._effects[name]

    def _effect_of_option(self, line: int, option: Option, needs: Needs) -> Effect:
        """The effect of an option, which adds to `needs`."""
        draws, length = set[Key](), 0
        for part in option.parts:
            if isinstance(part, str):
                length += len(part)
            elif isinstance(part, Hole):
                self._hole(line, part, needs, draws)
                length += self._lengths[part]
            elif isinstance(part, Choice):
                for hole in filter(None, (part.selector, part.without)):
                    self._hole(line, hole, needs, draws)
                if part.selector:
                    self._selector(line, part, part.selector)
                inner = [self._effect(name) for name in family(part, self.rules)]
                for effect in inner:
                    self._count(line, 1 + len(effect.needs) + len(effect.draws))
                    for key, place in effect.needs.items():
                        if key not in draws:
                            needs.setdefault(key, place)
                draws |= frozenset.intersection(*(effect.draws for effect in inner))
                if part.variable:
                    columns = frozenset.intersection(*(effect.columns for effect in inner))
                    draws |= {(part.variable, attribute) for attribute in columns}
                length += 1 + max(effect.length for effect in inner)
        return Effect(needs, frozenset(draws), frozenset(option.attributes), length)

    def _hole(self, line: int, hole: Hole, needs: Needs, draws: set[Key]) -> None:
        if hole not in self._lengths:
            self._lengths[hole] = max(map(len, self._texts(line, hole)))
        key = hole.variable, hole.attribute
        if hole.variable not in self.fixed and key not in draws:
            needs.setdefault(key, (line, hole))

    def _selector(self, line: int, choice: Choice, hole: Hole) -> None:
        """There is a rule, or a row, for every text that the hole can have."""
        table = choice.rule.removesuffix("=")
        texts = {option.parts[0] for option in self.options.get(table, ()) if table != choice.rule}
        values = self._texts(line, hole)
        self._count(line, len(values) + len(texts))
        for value in values:
            if choice.rule + value not in self.rules and value not in texts:
                what = f"{hole} may be {value!r}, and there is no "
                what += f"row {value!r} of {table!r}" if table != choice.rule else f"rule {choice.rule + value!r}"
                raise RuleError(line, what, "write one for each text of the hole")

    def _texts(self, line: int, hole: Hole) -> set[str]:
        """The texts that a hole can have. RuleError if it can have none."""
        if hole not in self._texts_of:
            values = self._values(line, hole)
            self._texts_of[hole] = {capitalize(value) for value in values} if hole.capital else values
        return self._texts_of[hole]

    def _values(self, line: int, hole: Hole) -> set[str]:
        """The texts of a hole with small letters. RuleError as for `_texts`."""
        if hole.variable in self.fixed:
            keys = self.fixed[hole.variable]
            if hole.attribute not in keys:
                raise RuleError(line, f"there is no fixed text {hole}", f"write {{{hole.variable}.{next(iter(keys))}}}")
            return {keys[hole.attribute]}
        if hole.variable not in self._variables:
            near = get_close_matches(hole.variable, self._variables, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"remember it: [{hole.variable}:RULE]"
            raise RuleError(line, f"nothing is called {hole.variable!r}", fix)
        return self._drawn_values(line, hole)

    def _drawn_values(self, line: int, hole: Hole) -> set[str]:
        """The values that are remembered for a hole. RuleError if that is nothing, or not plain text."""
        values: set[str] = set()
        drawn = [(rule, option) for rule in self._variables[hole.variable] for option in self.options[rule]]
        for rule in sorted({rule for rule, _ in drawn}):
            self._count(line, len(self.options[rule]))
            for written, option in zip(self.rules[rule].options, self.options[rule], strict=True):
                if not option.attributes:
                    what = f"{hole.variable!r} is drawn from {rule!r}, and this option of it is more than plain text"
                    raise RuleError(written.line, what, "only plain text can be remembered: write each text out")
                if hole.attribute in option.attributes:
                    values.add(option.attributes[hole.attribute])
        if not values:
            near = ", ".join(sorted({name for _, option in drawn for name in option.attributes}))
            fix = f"give a table that column, or take one of: {near}"
            raise RuleError(line, f"{hole} has no {hole.attribute!r}", fix)
        return values

    @cached_property
    def _capitals(self) -> set[str]:
        """The rules that are somewhere drawn with a capital letter, themselves or as the beginning of another."""
        choices = {part for each in self.options.values() for option in each for part in option.parts}
        plain = (part for part in choices if isinstance(part, Choice) and not part.selector)
        capitals, new = (
            set[str](),
            [*chain.from_iterable(family(part, self.rules) for part in plain if part.rule not in self.rules)],
        )
        while new:
            if (name := new.pop()) not in capitals:
                capitals.add(name)
                first = (option.parts[0] for option in self.options[name])
                begin = (part for part in first if isinstance(part, Choice) and not part.rule.endswith("="))
                new += [used for part in begin for used in family(part, self.rules)]
        return capitals

    def _begin_differently(self, rule: WrittenRule, capital: bool) -> None:
        """No option can begin with all that another begins with: the text would not tell which was drawn."""
        if len(rule.options) == 1:
            return
        total = math.fsum(option.weight for option in self.options[rule.name])
        openings = [
            (opening, written.line)
            for written, option in zip(rule.options, self.options[rule.name], strict=True)
            for opening in self._openings(written.line, option, option.weight / total, capital)
        ]
        stems = [(opening[0] if isinstance(opening[0], str) else "", opening, line) for opening, line in openings]
        stems.sort(key=lambda each: (each[0], len(each[1])))
        for i, (stem, opening, line) in enumerate(stems):
            for j in range(i + 1, len(stems)):
                longer, other, other_line = stems[j]
                if not longer.startswith(stem):
                    break
                shared = self._shared(line, opening, other)
                if shared is not None:
                    what = f"this option of {rule.name!r} and that of line {min(line, other_line)} both begin with "
                    fix = "make their first words differ, or move what they share into the rule that uses them"
                    raise RuleError(max(line, other_line), f"{what}{shared[:40]!r}", fix)

    def _openings(self, line: int, option: Option, share: float, capital: bool) -> Iterator[Opening]:
        """The beginnings of an option with this share of a rule: one for each way to draw the choices that begin it."""
        first, *rest = option.parts
        if isinstance(first, Choice) and not first.selector and not first.without:
            (name,) = family(first, self.rules)
            total = math.fsum(inner.weight for inner in self.options[name])
            for inner in self.options[name]:
                begun = Option(1.0, (*inner.parts, *rest))
                yield from self._openings(line, begun, share * inner.weight / total, capital or name != first.rule)
            return
        if share < LEAST_SHARE:
            what = f"of the texts of its rule, less than {LEAST_SHARE:g} begin with this option"
            raise RuleError(line, what, "raise its weight, or those of what it begins with")
        head, *tail = join_text([*takewhile(lambda part: not isinstance(part, Choice), option.parts)]) or ("",)
        n_copied = len(head if isinstance(head, str) else "") // 10 + len(option.parts) // 50
        self._count(line, STEPS_OF_OPENING + n_copied + len(tail))
        if capital:
            head = replace(head, capital=True) if isinstance(head, Hole) else capitalize(str(head))
        yield (head, *tail)

    def _shared(self, line: int, opening: Opening, other: Opening, n_filled: int = 0) -> str | None:
        """A text that is all of one opening, and with which the other can begin; None if there is none."""
        shared = ""
        while opening and other and n_filled < MOST_LEVELS:
            self._count(line)
            (first, *rest), (second, *others) = opening, other
            if isinstance(first, str) and isinstance(second, str):
                n = min(len(first), len(second))
                if first[:n] != second[:n]:
                    return None
                shared += first[:n]
                opening, other = join_text((first[n:], *rest)), join_text((second[n:], *others))
            elif first == second:
                shared += str(first)
                opening, other = tuple(rest), tuple(others)
            else:
                hole = next(part for part in (first, second) if isinstance(part, Hole))
                for text in sorted(self._texts(line, replace(hole, capital=False))):
                    more = self._shared(line, filled(opening, hole, text), filled(other, hole, text), n_filled + 1)
                    if more is not None:
                        return shared + more
                return None
        return shared

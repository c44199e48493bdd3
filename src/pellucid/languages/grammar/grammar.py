"""The grammar that writes and reads stories: a sequence of choices, each from a finite categorical distribution.

Between two choices the text is determined. At every choice the options begin with different texts, and none of these
is the beginning of another (they are prefix-free), so the text itself tells which option was drawn. So reading a story
needs no search, each text can be written in at most one way, and no story is the beginning of another:

    p(text) = product over its choices of p(option drawn | what was drawn before)

`notation.py` shows what rules, options, choices and holes look like.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise, takewhile

from pellucid.languages.grammar.notation import Bind, Choice, Hole, Option, Part, capitalize, join_text, used_by

Rules = Mapping[str, Sequence[Option]]
# The options drawn so far: variable -> its attributes.
State = Mapping[str, Mapping[str, str]]
# The parts still to be written, as a linked list, which stories with the same beginning share.
Rest = tuple[Part, "Rest"] | None
# A determined text and, if it fills a hole, that hole.
Piece = tuple[str, Hole | None]


def sums(values: Sequence[float]) -> list[float]:
    """The sum of the first n values for each n from 0 on."""
    return list(accumulate(values, initial=0.0))


def around(index: int, from_start: Sequence[float], from_end: Sequence[float]) -> float:
    """The sum of all values but one: those before it and those after it, as a difference could cancel."""
    return from_start[index] + from_end[len(from_end) - 2 - index]


def bind(state: State, variable: str, attributes: Mapping[str, str]) -> State:
    """The state with these attributes added to `variable`."""
    return {**state, variable: {**state.get(variable, {}), **attributes}}


def fill(hole: Hole, state: State) -> str:
    """The text of a hole."""
    text = state[hole.variable][hole.attribute]
    return capitalize(text) if hole.capital else text


class Rule:
    """A categorical distribution over options. Tables list the most frequent ones first."""

    def __init__(self, name: str, options: Sequence[Option]) -> None:
        self.name, self.options = name, options
        self.weights = [option.weight for option in options]
        self.sums = sums(self.weights)
        self.total = self.sums[-1]
        openings = [takewhile(lambda part: not isinstance(part, Choice), option.parts) for option in options]
        for shorter, longer in pairwise(sorted("".join(map(str, opening)) for opening in openings)):
            if longer.startswith(shorter):
                raise ValueError(f"rule {name!r}: an option begins with {shorter!r}, and so does {longer!r}")

    def at(self, mass: float) -> int:
        """The option that covers this mass, where each takes up its weight."""
        return bisect_right(self.sums, mass, 1, len(self.sums) - 1) - 1  # not the total: rounding errors may reach it

    @cached_property
    def is_table(self) -> bool:
        """Whether every option is plain text."""
        return all(isinstance(part, str) for option in self.options for part in option.parts)

    @cached_property
    def sums_from_end(self) -> list[float]:
        return sums(self.weights[::-1])

    @cached_property
    def logarithms(self) -> tuple[list[float], list[float]]:
        """The sums of w ln w over the first and over the last options, from which `entropy` follows."""
        terms = [weight * math.log(weight) for weight in self.weights]
        return sums(terms), sums(terms[::-1])

    @cached_property
    def index_of(self) -> dict[tuple[str, str], int]:
        """The index of the option with an (attribute, value)."""
        return {item: i for i, option in enumerate(self.options) for item in option.attributes.items()}

    @cached_property
    def by_opening(self) -> tuple[Mapping[str, list[int]], set[int]]:
        """The options by the text with which they begin, "" for those that begin with a hole; the lengths of these."""
        openings: defaultdict[str, list[int]] = defaultdict(list)
        for i, option in enumerate(self.options):
            first = option.parts[0] if option.parts else ""
            openings[first if isinstance(first, str) else ""].append(i)
        return dict(openings), set(map(len, openings))


class Fork:
    """A story that has reached a choice: the options, and how the story continues with each."""

    __slots__ = ("_choice", "_grammar", "_rest", "_written", "excluded", "rule", "state", "total")

    def __init__(self, grammar: Grammar, choice: Choice, rest: Rest, state: State) -> None:
        self._grammar, self._choice, self._rest, self.state = grammar, choice, rest, state
        self._written: dict[int, tuple[str, Fork | None]] = {}
        self.rule = grammar.rule_of(choice, state)
        self.excluded: int | None = None
        self.total = self.rule.total
        if choice.without:
            self.excluded = self.rule.index_of.get((choice.without.attribute, fill(choice.without, state)))
            if self.excluded is not None:
                self.total = around(self.excluded, self.rule.sums, self.rule.sums_from_end)

    def ahead(self) -> Iterator[Part]:
        """The parts still to be written, this choice first."""
        yield self._choice
        rest = self._rest
        while rest is not None:
            part, rest = rest
            yield part

    def allowed(self) -> list[int]:
        """The options that may be drawn here."""
        return [i for i in range(len(self.rule.options)) if i != self.excluded]

    def probability(self, index: int) -> float:
        return self.rule.weights[index] / self.total

    def draw(self, uniform: float) -> int:
        """The option for a uniform random number from [0, 1)."""
        sums, excluded = self.rule.sums, self.excluded
        mass = uniform * self.total
        if excluded is None or mass < sums[excluded]:
            return self.rule.at(mass)
        # Of the options after the excluded one, the last that leaves no more than the rest of the mass to those after.
        index = len(sums) - 1 - bisect_left(self.rule.sums_from_end, self.total - mass)
        return max(index, excluded + 1) if excluded + 2 < len(sums) else excluded - 1

    def find(self, text: str, start: int) -> int | None:
        """The option whose determined text is at `start`: one at most, because options are prefix-free."""
        openings, lengths = self.rule.by_opening
        for length in lengths:
            for i in openings.get(text[start : start + length], ()):
                if i != self.excluded and text.startswith(self.write(i)[0], start):
                    return i
        return None

    def write(self, index: int) -> tuple[str, Fork | None]:
        """The determined text from this option up to the next choice, and that choice; None at the story's end."""
        if index not in self._written:
            pieces, after = self.write_pieces(index)
            self._written[index] = "".join([text for text, _ in pieces]), after
        return self._written[index]

    def write_pieces(self, index: int) -> tuple[list[Piece], Fork | None]:
        """As `write`, but with the text in pieces, to show which of them fill holes."""
        option, variable, rest = self.rule.options[index], self._choice.variable, self._rest
        for part in reversed(option.parts):
            rest = (part, rest)
        return self._grammar.advance(rest, bind(self.state, variable, option.attributes) if variable else self.state)


Read = tuple[Sequence[tuple[Fork, int]], int, Fork | None]


class Grammar:
    """Rules with which to write and read stories. constants: variables that are set before the first choice."""

    def __init__(self, rules: Rules, constants: State, start: str = "fable") -> None:
        self.source = rules
        self._rules: dict[str, Rule] = {}
        self.constants = constants
        self.start = Choice(start)
        for name in rules:
            self.rule(name)

    def rule(self, name: str) -> Rule:
        """The rule of this name; with a capital letter, its options have capital letters."""
        if name not in self._rules:
            options = self.written(name)
            if len(options) > 1:
                options = [opened for option in options for opened in self._opened(option)]
            self._rules[name] = Rule(name, options)
        return self._rules[name]

    def rule_of(self, choice: Choice, state: State) -> Rule:
        """The rule that a choice draws from; a selector names it by what was drawn before."""
        return self.rule(choice.rule + fill(choice.selector, state) if choice.selector else choice.rule)

    def written(self, name: str) -> Sequence[Option]:
        """The options of a rule as in the source; those of `rule` are ready for reading."""
        table, is_row, row = name.partition("=")
        if is_row and name not in self.source:
            drawn = self.rule(table)
            return [Option(1.0, (), drawn.options[drawn.by_opening[0][row][0]].attributes)]
        options = self.source[self.plain(name)]
        return options if name in self.source else [_capitalized(option) for option in options]

    def plain(self, name: str) -> str:
        """The name of a rule in the source, without the capital letter that asks for one."""
        return name if name in self.source else name[:1].lower() + name[1:]

    def changed(self, rules: Rules) -> Grammar:
        """This grammar with other options for some rules, or with new rules; rules that do not use them are shared."""
        other, touched = Grammar({}, self.constants, self.start.rule), self.above(rules)
        other.source = {**self.source, **rules}
        other._rules = {name: rule for name, rule in self._rules.items() if self.plain(name) not in touched}
        return other

    def above(self, names: Collection[str]) -> set[str]:
        """These rules and all that use them, directly or not."""
        rules, new = set(names), list(names)
        while new:
            users = self._users.get(new.pop(), set()) - rules
            rules |= users
            new += users
        return rules

    @cached_property
    def _users(self) -> Mapping[str, set[str]]:
        """The rules that use each rule."""
        users: defaultdict[str, set[str]] = defaultdict(set)
        for name, options in self.source.items():
            for used in {used for option in options for used in used_by(option, self.source)}:
                users[used].add(name)
        return users

    def _opened(self, option: Option) -> Iterator[Option]:
        """Options that begin with text, of the same distribution as one that begins with a choice."""
        first = option.parts[0] if option.parts else ""
        if not isinstance(first, Choice) or first.selector or first.without:
            yield option
            return
        rule = self.rule(first.rule)
        for inner in rule.options:
            memory = (Bind(first.variable, inner.attributes),) if first.variable else ()
            parts = join_text((*inner.parts, *memory, *option.parts[1:]))
            weight = option.weight * inner.weight / rule.total
            yield from self._opened(Option(weight, parts, option.attributes))

    def advance(self, rest: Rest, state: State) -> tuple[list[Piece], Fork | None]:
        """Write the determined text up to the next choice, or to the end of the story."""
        pieces: list[Piece] = []
        while rest is not None:
            part, rest = rest
            if isinstance(part, str):
                pieces.append((part, None))
            elif isinstance(part, Hole):
                pieces.append((fill(part, state), part))
            elif isinstance(part, Bind):
                state = bind(state, part.variable, part.attributes)
            else:
                return pieces, Fork(self, part, rest, state)
        return pieces, None

    def begin(self) -> Fork:
        """The first choice of every story."""
        return Fork(self, self.start, None, self.constants)

    def derive(self, random: Callable[[], float]) -> str:
        """Draw a story. `random` gives numbers from [0, 1)."""
        story: list[str] = []
        ahead: list[Part] = [self.start]  # in reverse order
        state = self.constants
        while ahead:
            part = ahead.pop()
            if isinstance(part, str):
                story.append(part)
            elif isinstance(part, Hole):
                story.append(fill(part, state))
            elif isinstance(part, Bind):
                state = bind(state, part.variable, part.attributes)
            else:
                rule = self.rule_of(part, state)
                # Most choices exclude nothing, and need no fork.
                place = Fork(self, part, None, state).draw(random()) if part.without else rule.at(random() * rule.total)
                option = rule.options[place]
                ahead += reversed(option.parts)
                if part.variable:
                    state = bind(state, part.variable, option.attributes)
        return "".join(story)

    def read(self, text: str) -> Read:
        """The choices that write the beginning of a text, each with the option drawn; where they end; the next choice.

        The text is a complete story if they end where it ends, and no choice is next. The result is cached: do not
        change it.
        """
        return _read(self, text)


@lru_cache(maxsize=2)  # several methods read the same text in a row, perhaps with two grammars
def _read(grammar: Grammar, text: str) -> Read:
    drawn: list[tuple[Fork, int]] = []
    end, fork = 0, grammar.begin()
    while (index := fork.find(text, end)) is not None:
        drawn.append((fork, index))
        written, after = fork.write(index)
        end += len(written)
        if after is None:
            return drawn, end, None
        fork = after
    return drawn, end, fork


def _capitalized(option: Option) -> Option:
    first = option.parts[0]
    if isinstance(first, str):
        first = capitalize(first)
    elif isinstance(first, Hole):
        first = replace(first, capital=True)
    elif isinstance(first, Choice):
        first = replace(first, rule=capitalize(first.rule))
    return replace(option, parts=(first, *option.parts[1:]))

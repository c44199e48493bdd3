"""The machine that writes and reads stories: a sequence of choices, each drawn from a finite categorical distribution.

Between two choices the text is determined. At every choice the options begin with different texts, and none of these
is the beginning of another (they are prefix-free), so the text itself tells which option was drawn. So reading a story
needs no search, each text can be written in at most one way, and no story is the beginning of another:

    p(text) = product over its choices of p(option drawn | what was drawn before)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise

from pellucid.corpora.fables.notation import Bind, Choice, Hole, Option, Part, capitalize, join_text

# What was drawn so far: variable -> its attributes.
State = Mapping[str, Mapping[str, str]]
# What is still to be written, as a linked list: it is shared, never copied, between stories with the same beginning.
Rest = tuple[Part, "Rest"] | None
# A determined text and, if it fills a hole, that hole.
Piece = tuple[str, Hole | None]


def bind(state: State, variable: str, attributes: Mapping[str, str]) -> State:
    """The state in which `variable` has these attributes too."""
    return {**state, variable: {**state.get(variable, {}), **attributes}}


def fill(hole: Hole, state: State) -> str:
    """The text of a hole."""
    text = state[hole.variable][hole.attribute]
    return capitalize(text) if hole.capital else text


def push(parts: Sequence[Part], rest: Rest) -> Rest:
    """The parts, and then the rest."""
    for part in reversed(parts):
        rest = (part, rest)
    return rest


class Rule:
    """A categorical distribution over options. Tables list the most frequent ones first."""

    def __init__(self, name: str, options: Sequence[Option]) -> None:
        self.name = name
        self.options = tuple(options)
        self.weights = [option.weight for option in options]
        self.cumulative = list(accumulate(self.weights))
        self.total = self.cumulative[-1]
        self._openings = [_until_choice(option.parts) for option in options]
        if len(options) > 1:
            _check_prefix_free(name, ["".join(map(str, opening)) for opening in self._openings])

    @cached_property
    def plain(self) -> bool:
        """Whether every option is nothing but text: a table."""
        return all(len(option.parts) == 1 and isinstance(option.parts[0], str) for option in self.options)

    @cached_property
    def weight_logarithms(self) -> float:
        """The sum of w ln w over the weights, from which `entropy` follows."""
        return math.fsum(weight * math.log(weight) for weight in self.weights)

    @cached_property
    def index_of(self) -> dict[tuple[str, str], int]:
        """Which option has this value of this attribute."""
        return {item: i for i, option in enumerate(self.options) for item in option.attributes.items()}

    @cached_property
    def by_text(self) -> tuple[dict[str, int], list[int]] | None:
        """Options by their first text, with the lengths that occur; None unless these texts are prefix-free."""
        firsts = [option.parts[0] if option.parts else "" for option in self.options]
        texts = [first for first in firsts if isinstance(first, str)]
        if len(texts) < len(firsts) or any(b.startswith(a) for a, b in pairwise(sorted(texts))):
            return None
        return {text: i for i, text in enumerate(texts)}, sorted({len(text) for text in texts})

    def opening(self, index: int, state: State) -> str:
        """The text that an option begins with, up to its first choice."""
        text = ""
        for part in self._openings[index]:
            if isinstance(part, str):
                text += part
            elif isinstance(part, Hole):
                text += fill(part, state)
            elif isinstance(part, Bind):
                state = bind(state, part.variable, part.attributes)
        return text


def _until_choice(parts: Sequence[Part]) -> list[Part]:
    first = next((i for i, part in enumerate(parts) if isinstance(part, Choice)), len(parts))
    return list(parts[:first])


def _check_prefix_free(name: str, openings: Sequence[str]) -> None:
    for shorter, longer in pairwise(sorted(openings)):
        if longer.startswith(shorter):
            raise ValueError(f"rule {name!r}: an option begins with {shorter!r}, and so does {longer!r}")


class Fork:
    """A story that has reached a choice: the options, and how the story continues with each."""

    __slots__ = ("_choice", "_rest", "excluded", "rule", "state", "total")

    def __init__(self, rule: Rule, choice: Choice, rest: Rest, state: State) -> None:
        self.rule, self._choice, self._rest, self.state = rule, choice, rest, state
        self.excluded: int | None = None
        self.total = rule.total
        if choice.without:
            self.excluded = rule.index_of.get((choice.without.attribute, fill(choice.without, state)))
            if self.excluded is not None:
                self.total -= rule.weights[self.excluded]

    def allowed(self) -> list[int]:
        """The options that may be drawn here."""
        return [i for i in range(len(self.rule.options)) if i != self.excluded]

    def probability(self, index: int) -> float:
        return self.rule.weights[index] / self.total

    def draw(self, uniform: float) -> int:
        """The option that a number from [0, 1) draws."""
        cumulative, excluded = self.rule.cumulative, self.excluded
        mass = uniform * self.total
        if excluded is not None and mass >= (cumulative[excluded - 1] if excluded else 0.0):
            mass += self.rule.weights[excluded]
        index = bisect_right(cumulative, mass)
        while index == len(cumulative) or index == excluded:  # only by rounding, at the upper end
            index -= 1
        return index

    def opening(self, index: int) -> str:
        return self.rule.opening(index, self.state)

    def find(self, text: str, start: int) -> int | None:
        """The option that `text` shows at `start`: one at most, because openings are prefix-free."""
        if self.rule.by_text:
            indices, lengths = self.rule.by_text
            found = (indices.get(text[start : start + length]) for length in lengths)
            index = next((i for i in found if i is not None), None)
            return None if index == self.excluded else index
        return next((i for i in self.allowed() if text.startswith(self.opening(i), start)), None)

    def take(self, index: int) -> tuple[Rest, State]:
        """Continue with this option."""
        option, variable = self.rule.options[index], self._choice.variable
        state = bind(self.state, variable, option.attributes) if variable else self.state
        return push(option.parts, self._rest), state


class Grammar:
    """Rules, and what can be computed from them. `constants` are variables that are known before the first choice."""

    def __init__(
        self,
        rules: Mapping[str, Sequence[Option]],
        constants: State,
        start: str = "fable",
    ) -> None:
        self._source = rules
        self._rules: dict[str, Rule] = {}
        self.constants = constants
        self.start = Choice(start)
        for name in rules:
            self.rule(name)

    def rule(self, name: str) -> Rule:
        """The rule of this name; a capital letter asks for the options with a capital letter."""
        if name not in self._rules:
            options = self.written(name)
            if len(options) > 1:
                options = [opened for option in options for opened in self._opened(option)]
            self._rules[name] = Rule(name, options)
        return self._rules[name]

    def written(self, name: str) -> Sequence[Option]:
        """The options of a rule as they were written; `rule` has them ready for reading."""
        if name in self._source:
            return self._source[name]
        return [_capitalized(option) for option in self._source[name[0].lower() + name[1:]]]

    def _opened(self, option: Option) -> Iterator[Option]:
        """An option that begins with a choice, as options that begin with text: the same distribution."""
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

    def rule_of(self, choice: Choice, state: State) -> Rule:
        """The rule that a choice draws from, given what was drawn before."""
        name = choice.rule + fill(choice.selector, state) if choice.selector else choice.rule
        return self._rules.get(name) or self.rule(name)

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
                return pieces, Fork(self.rule_of(part, state), part, rest, state)
        return pieces, None

    def begin(self) -> tuple[list[Piece], Fork | None]:
        return self.advance((self.start, None), self.constants)

    def derive(self, random: Callable[[], float]) -> tuple[str, list[tuple[Fork, int]]]:
        """Draw a story: its text, and its choices with the option drawn. `random` gives numbers from [0, 1)."""
        texts: list[str] = []
        drawn: list[tuple[Fork, int]] = []
        pieces, fork = self.begin()
        while fork:
            drawn.append((fork, fork.draw(random())))
            pieces, fork = self.advance(*fork.take(drawn[-1][1]))
            texts.extend([text for text, _ in pieces])
        return "".join(texts), drawn

    def read(self, text: str) -> list[tuple[Fork, int]] | None:
        """The choices that write this text, each with the option drawn; None if no story has this text."""
        drawn: list[tuple[Fork, int]] = []
        end = 0
        pieces, fork = self.begin()
        while fork:
            index = fork.find(text, end)
            if index is None:
                return None
            drawn.append((fork, index))
            pieces, fork = self.advance(*fork.take(index))
            for piece, _ in pieces:
                if not text.startswith(piece, end):
                    return None
                end += len(piece)
        return drawn if end == len(text) else None

    def log_probability(self, text: str) -> float:
        """In nats; minus infinity for a text that is not a story."""
        drawn = self.read(text)
        if drawn is None:
            return -math.inf
        return math.fsum(math.log(fork.probability(index)) for fork, index in drawn)

    def stories(self) -> Iterator[tuple[str, float]]:
        """Every story with its probability. Only for small grammars: a real world has far too many."""
        yield from self._stories("", 1.0, self.begin()[1])

    def _stories(self, written: str, probability: float, fork: Fork | None) -> Iterator[tuple[str, float]]:
        if fork is None:
            yield written, probability
            return
        for index in fork.allowed():
            pieces, after = self.advance(*fork.take(index))
            text = written + "".join(piece for piece, _ in pieces)
            yield from self._stories(text, probability * fork.probability(index), after)


def _capitalized(option: Option) -> Option:
    first = option.parts[0]
    if isinstance(first, str):
        first = capitalize(first)
    elif isinstance(first, Hole):
        first = replace(first, capital=True)
    elif isinstance(first, Choice):
        first = replace(first, rule=capitalize(first.rule))
    return replace(option, parts=(first, *option.parts[1:]))

"""Markov chains, each with a matrix of its own: can a model learn while it reads?

For each document a transition matrix is drawn, its rows from a Dirichlet distribution with all parameters α. Nobody
tells the reader which matrix it is. After n_i transitions from state i, n_ij of them to j, Bayes' rule gives

    p(next is j | so far, now in i) = (n_ij + α) / (n_i + kα)

with k states. So the best possible reader counts pairs: it learns in context (Edelman et al. 2024).
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, text_of, uniform

Strategy = Literal["evenly", "counts", "pairs"]


class Seen(NamedTuple):
    """The memory of a reader: how many symbols there were, the last one, and how often each followed each."""

    length: int
    last: int
    pairs: tuple[tuple[int, ...], ...]


class Chains(SymbolLanguage[Seen]):
    """Documents of `length` symbols from a Markov chain of `states` states, whose matrix is drawn anew for each."""

    skills = ("never seen", "seen", SPELLING)

    def __init__(self, states: int, alpha: float, length: int) -> None:
        self.names = NAMES[:states]
        self.alpha, self.length = alpha, length

    def begin(self) -> Seen:
        return Seen(0, -1, ((0,) * len(self.names),) * len(self.names))

    def following(self, state: Seen) -> Mapping[str, float]:
        if state.length == self.length:
            return {END: 1.0}
        if state.length == 0:
            return uniform(self.names)
        return dict(zip(self.names, self._predictive(state.pairs[state.last]), strict=True))

    def after(self, state: Seen, symbol: str) -> Seen:
        new, pairs = self.names.index(symbol), list(state.pairs)
        if state.length:
            row = list(pairs[state.last])
            row[new] += 1
            pairs[state.last] = tuple(row)
        return Seen(state.length + 1, new, tuple(pairs))

    def skill(self, state: Seen, symbol: str) -> str:
        return "seen" if state.length and any(state.pairs[state.last]) else "never seen"

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """All that followed the last symbol earlier: that is what a reader counts."""
        return [i for i in range(1, place) if symbols[i - 1] == symbols[place - 1]]

    def write(self, rng: random.Random) -> str:
        """Draw a document: each symbol as the best reader would guess it, which is how chains write (Pólya's urn)."""
        n = len(self.names)
        weights = [[self.alpha] * n for _ in range(n)]
        now = rng.randrange(n)
        states = [now]
        for _ in range(self.length - 1):
            row = weights[now]
            [now] = rng.choices(range(n), row)
            row[now] += 1
            states.append(now)
        return text_of([self.names[state] for state in states])

    def nats_by_strategy(self, text: str, strategy: Strategy) -> Iterator[float]:
        """−ln p of each symbol of a document for a reader who guesses evenly, by counts of symbols, or by pairs.

        "pairs" is the truth, and the floor. "counts" is Bayes' rule for symbols that do not depend on each other.
        """
        counts = [0] * len(self.names)
        for state, symbol in self.steps(text):
            if symbol == END:
                return
            new = self.names.index(symbol)
            if strategy == "evenly":
                yield math.log(len(self.names))
            elif strategy == "counts":
                yield -math.log(self._predictive(counts)[new])
            else:
                yield -math.log(self.following(state)[symbol])
            counts[new] += 1

    def _predictive(self, counts: Sequence[int]) -> list[float]:
        total = sum(counts) + len(counts) * self.alpha
        return [(count + self.alpha) / total for count in counts]

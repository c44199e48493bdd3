"""Hidden Markov models: a state that nobody sees writes the symbols. What does a reader believe about it?

The best reader keeps the probability of each state, its belief η, and after a symbol x changes it by Bayes' rule:

    p(x | so far) = Σ_ij η_i T_ij(x),        η'_j = Σ_i η_i T_ij(x) / p(x | so far)

where T_ij(x) is the probability to go from state i to j and write x. That is the forward algorithm. Shai et al. (2024)
found the beliefs, which may form a fractal, in the residual stream of a trained transformer.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pellucid.errors import DataError
from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, draw, symbols_of, text_of

# p(next state, symbol | state) as [symbol][state][next state].
Transitions = Sequence[Sequence[Sequence[float]]]
# After a b comes an a; after an a, either.
GOLDEN_MEAN: Transitions = [[[0.5, 0.0], [1.0, 0.0]], [[0.0, 0.5], [0.0, 0.0]]]


class Belief(NamedTuple):
    """The number of symbols so far, and the probability of each hidden state."""

    length: int
    states: tuple[float, ...]


class Hidden(SymbolLanguage[Belief]):
    """Documents of `length` symbols from a hidden Markov model that begins in its stationary distribution."""

    skills = ("symbol", SPELLING)

    def __init__(self, transitions: Transitions, length: int) -> None:
        self.transitions, self.length = transitions, length
        self.names = NAMES[: len(transitions)]
        self.stationary = stationary(transitions)
        states = range(len(self.stationary))
        # Of each state: every symbol with every next state, and their probability.
        self._ways = [
            [((name, j), matrix[i][j]) for name, matrix in zip(self.names, transitions, strict=True) for j in states]
            for i in states
        ]

    def begin(self) -> Belief:
        return Belief(0, self.stationary)

    def following(self, state: Belief) -> Mapping[str, float]:
        if state.length == self.length:
            return {END: 1.0}
        masses = {name: math.fsum(self._moved(state, x)) for x, name in enumerate(self.names)}
        total = math.fsum(masses.values())  # 1, but for rounding errors
        return {name: mass / total for name, mass in masses.items() if mass > 0}

    def after(self, state: Belief, symbol: str) -> Belief:
        masses = self._moved(state, self.names.index(symbol))
        total = math.fsum(masses)
        return Belief(state.length + 1, tuple(mass / total for mass in masses))

    def skill(self, state: Belief, symbol: str) -> str:
        return "symbol"

    def beliefs(self, text: str) -> list[tuple[float, ...]]:
        """The belief after each symbol of a document or its beginning. DataError if no document begins like this."""
        state, beliefs = self.begin(), list[tuple[float, ...]]()
        for symbol in symbols_of(text):
            if symbol not in self.following(state) or symbol == END:
                raise DataError("text", f"no document begins with {text[:40]!r}", "give one that the process can write")
            state = self.after(state, symbol)
            beliefs.append(state.states)
        return beliefs

    def write(self, rng: random.Random) -> str:
        """Draw a document, as the process does: state by state."""
        state = draw(list(enumerate(self.stationary)), rng)
        symbols = list[str]()
        for _ in range(self.length):
            symbol, state = draw(self._ways[state], rng)
            symbols.append(symbol)
        return text_of(symbols)

    def _moved(self, state: Belief, x: int) -> list[float]:
        """p(state after the symbol x, x | so far) for each state."""
        columns = zip(*self.transitions[x], strict=True)
        return [math.fsum(p * q for p, q in zip(state.states, column, strict=True)) for column in columns]


def random_process(states: int, symbols: int, seed: int) -> Transitions:
    """The transitions of a random process. The ways on from a state are a point of the simplex, all equally likely."""
    rng = random.Random(f"hidden {states} {symbols} {seed}")
    # Gamma(1, 1) variables, divided by their sum, are such a point.
    rows = [[-math.log(1 - rng.random()) for _ in range(states * symbols)] for _ in range(states)]
    shares = [[each / math.fsum(row) for each in row] for row in rows]
    return [[row[x * states : (x + 1) * states] for row in shares] for x in range(symbols)]


def mess3(move: float, own: float) -> Transitions:
    """Three states: the process moves to each other one with probability `move`, then writes.

    A state writes its own symbol with probability `own`, and else one of the two others (Marzen and Crutchfield 2017).
    """
    moves = [[1 - 2 * move if i == j else move for j in range(3)] for i in range(3)]
    writes = [[own if j == x else (1 - own) / 2 for x in range(3)] for j in range(3)]
    return [[[moves[i][j] * writes[j][x] for j in range(3)] for i in range(3)] for x in range(3)]


def stationary(transitions: Transitions) -> tuple[float, ...]:
    """The distribution of states that a step does not change, by stepping until it changes no more."""
    n = len(transitions[0])
    shares = [1 / n] * n
    for _ in range(10_000):
        later = [math.fsum(shares[i] * matrix[i][j] for matrix in transitions for i in range(n)) for j in range(n)]
        if max(abs(a - b) for a, b in zip(shares, later, strict=True)) < 1e-15:
            break
        shares = [(a + b) / 2 for a, b in zip(shares, later, strict=True)]  # a process of period two settles, too
    total = math.fsum(shares)
    return tuple(share / total for share in shares)

"""Random context-free grammars: sentences are trees, and one text may have several. Can a model parse?

A constituent of level l is a pair of constituents of level l − 1, or, at low levels, a single symbol; those of level 0
always are. The best reader weighs all trees that agree with what it has read. Two tables are enough for that:

    inside_ij[A]   the probability that A writes the symbols i … j − 1
    next_j[A]      the probability of a text that begins with the first j symbols and goes on with a constituent A

and then p(next symbol x | first j symbols) ∝ Σ_A next_j[A] p(A begins with x). That is the prefix probability of
Jelinek and Lafferty (1991), kept up symbol by symbol as by Stolcke (1995). Allen-Zhu and Li (2023) found that
transformers learn such grammars.

Shapes: A, B, C run over all constituents; X over symbols.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, draw, text_of

Vector = NDArray[np.float64]
LEAF_LEVELS = 2  # up to this level a constituent may be a single symbol
LEAF_SHARE = 0.25


class Parsed(NamedTuple):
    """All trees of the first n symbols: inside[i, j - 1] is inside_ij (n, n, A), next[j] is next_j (n + 1, A)."""

    inside: Vector
    next: Vector


class RandomGrammar(NamedTuple):
    """Probabilities of the rules A → B C and A → x, and the level of each A; A = 0 begins every text."""

    pairs: Vector  # (A, B, C)
    leaves: Vector  # (A, X)
    levels: tuple[int, ...]


def random_grammar(levels: int, width: int, symbols: int, rules: int, seed: int) -> RandomGrammar:
    """Constituents on `levels` levels, `width` on each below the top, each with `rules` rules of random weights."""
    rng = random.Random(f"trees {levels} {width} {symbols} {rules} {seed}")
    level_A = [levels, *(level for level in reversed(range(levels)) for _ in range(width))]
    n = len(level_A)
    pair_ABC, leaf_AX = np.zeros((n, n, n)), np.zeros((n, symbols))
    for a, level in enumerate(level_A):
        below = [b for b in range(n) if level_A[b] == level - 1]
        share = 0.0 if level > LEAF_LEVELS else LEAF_SHARE if level else 1.0
        for _ in range(rules if share < 1 else 0):
            pair_ABC[a, rng.choice(below), rng.choice(below)] += 0.5 + rng.random()
        for _ in range(rules if share else 0):
            leaf_AX[a, rng.randrange(symbols)] += 0.5 + rng.random()
        pair_ABC[a] *= (1 - share) / max(pair_ABC[a].sum(), 1e-300)
        leaf_AX[a] *= share / max(leaf_AX[a].sum(), 1e-300)
    return RandomGrammar(pair_ABC, leaf_AX, tuple(level_A))


class Trees(SymbolLanguage[Parsed]):
    """The texts of a random grammar, of at most 2 ** levels symbols."""

    def __init__(self, grammar: RandomGrammar) -> None:
        self.grammar = grammar
        self.names = NAMES[: grammar.leaves.shape[1]]
        self.skills = (*(f"level {level}" for level in range(max(grammar.levels) + 1)), SPELLING)
        n = len(grammar.levels)
        # p(A begins with B), directly or not, B = A included: the sum of all powers of p(A → B …).
        self._begins_AB = np.linalg.inv(np.eye(n) - grammar.pairs.sum(axis=2))
        self._begins_AX = self._begins_AB @ grammar.leaves
        # Of each constituent: its symbols and its pairs, the second part first, each with its probability.
        self._rules: list[list[tuple[str | tuple[int, int], float]]] = [
            [(self.names[x], float(grammar.leaves[a, x])) for x in np.flatnonzero(grammar.leaves[a])]
            + [((int(c), int(b)), float(grammar.pairs[a, b, c])) for b, c in np.argwhere(grammar.pairs[a])]
            for a in range(n)
        ]
        self._pairs_A_BC = grammar.pairs.reshape(n, n * n)
        self._pairs_AB_C = grammar.pairs.reshape(n * n, n)

    @property
    def entropy_nats(self) -> None:
        """Not known: each beginning of a text is a state of its own."""

    def begin(self) -> Parsed:
        next_A = np.zeros((1, len(self.grammar.levels)))
        next_A[0, 0] = 1.0
        return Parsed(np.zeros((0, 0, len(self.grammar.levels))), next_A)

    def following(self, state: Parsed) -> Mapping[str, float]:
        masses = dict(zip(self.names, (state.next[-1] @ self._begins_AX).tolist(), strict=True))
        masses[END] = float(state.inside[0, -1, 0]) if len(state.inside) else 0.0
        total = sum(masses.values())
        return {symbol: mass / total for symbol, mass in masses.items() if mass > 0}

    def after(self, state: Parsed, symbol: str) -> Parsed:
        n = len(state.inside)
        inside = np.pad(state.inside, ((0, 1), (0, 1), (0, 0)))
        inside[n, n] = self.grammar.leaves[:, self.names.index(symbol)]
        for i in reversed(range(n)):  # every way to split i … n: B writes the symbols before k, C the others
            splits_BC = inside[i, i:n].T @ inside[i + 1 :, n]
            inside[i, n] = self._pairs_A_BC @ splits_BC.ravel()
        # A constituent A that began at i, whose B ends here, goes on with C.
        begun_IA = state.next @ self._begins_AB
        next_C = (begun_IA.T @ inside[:, n]).ravel() @ self._pairs_AB_C
        return Parsed(inside, np.vstack([state.next, next_C]))

    def skill(self, state: Parsed, symbol: str) -> str:
        """The level of the largest constituent that begins here, as the best reader guesses it."""
        shares = np.bincount(self.grammar.levels, weights=state.next[-1])
        return f"level {int(shares.argmax())}"

    def write(self, rng: random.Random) -> str:
        """Draw a text, from the top of its tree downwards."""
        symbols, ahead = list[str](), [0]  # constituents still to be written, in reverse order
        while ahead:
            below = draw(self._rules[ahead.pop()], rng)
            if isinstance(below, str):
                symbols.append(below)
            else:
                ahead += below
        return text_of(symbols)

"""Arrows from name to name, and questions that follow several of them: how many layers do k steps take?

    c > a a > b b > c : a 2 c

The arrows are a random permutation, told in random order. "a 2" asks where two steps from a lead. Every answer is
certain, but a layer of attention follows one arrow at a time, or doubles the steps (Sanford et al. 2024).
"""

import math
from collections.abc import Mapping, Sequence

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, uniform

ARROW, COLON = ">", ":"
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Hops(SymbolLanguage[tuple[str, ...]]):
    """Documents of an arrow from each of `names` names, and `queries` questions about 1 to `hops` steps.

    The state is the symbols so far.
    """

    def __init__(self, names: int, hops: int, queries: int) -> None:
        self.names = NAMES[:names]
        self.hops, self.queries = hops, queries
        self.skills = ("arrows", *(f"{COUNTS[n]} hop{'s' * (n > 1)}" for n in range(1, hops + 1)), SPELLING)

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: an order of names, a permutation, and free questions."""
        n = len(self.names)
        return 2 * math.lgamma(n + 1) + self.queries * math.log(n * self.hops)

    def begin(self) -> tuple[str, ...]:
        return ()

    def following(self, state: tuple[str, ...]) -> Mapping[str, float]:
        place, asked_at = len(state), 3 * len(self.names)
        if place < asked_at:
            told = state[0::3] if place % 3 == 0 else state[2::3]
            return {ARROW: 1.0} if place % 3 == 1 else uniform([name for name in self.names if name not in told])
        if place == asked_at + 4 * self.queries:
            return {END: 1.0}
        part = (place - asked_at) % 4
        if part == 0:
            return {COLON: 1.0}
        if part == 1:
            return uniform(self.names)
        if part == 2:
            return uniform([str(n) for n in range(1, self.hops + 1)])
        return {self._way(state, place)[-1]: 1.0}

    def after(self, state: tuple[str, ...], symbol: str) -> tuple[str, ...]:
        return (*state, symbol)

    def skill(self, state: tuple[str, ...], symbol: str) -> str:
        asked = len(state) - 3 * len(self.names)
        if asked >= 0 and asked % 4 == 3:
            return self.skills[int(state[-1])]
        return SPELLING if symbol in (ARROW, COLON) else "arrows"

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """An answer is decided by the ends of all arrows on the way."""
        asked = place - 3 * len(self.names)
        if asked < 0 or asked % 4 != 3:
            return ()
        ends = symbols[2 : 3 * len(self.names) : 3]
        return [3 * ends.index(name) + 2 for name in self._way(symbols, place)]

    def _way(self, symbols: Sequence[str], place: int) -> list[str]:
        """The names to which each step leads from the question before this place."""
        arrows = dict(zip(symbols[0 : 3 * len(self.names) : 3], symbols[2 : 3 * len(self.names) : 3], strict=True))
        name, way = symbols[place - 2], []
        for _ in range(int(symbols[place - 1])):
            name = arrows[name]
            way.append(name)
        return way

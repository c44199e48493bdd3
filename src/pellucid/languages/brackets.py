"""Balanced brackets of several kinds, up to a depth: what does it take to count?

    ( [ ] ( ) ) { }

At each place a bracket opens, of any kind, or the last open one closes, each with probability 1/2 where both are
possible. Which kind closes is certain to a reader who remembers what is open (Hahn 2020; Yao et al. 2021).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, SymbolLanguage, entropy

KINDS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))
Open = tuple[int, str]  # the number of symbols so far, and the brackets that are still open


class Brackets(SymbolLanguage[Open]):
    """Documents of `length` brackets (an even number) of `kinds` kinds, at most `depth` open at a time."""

    def __init__(self, kinds: int, depth: int, length: int) -> None:
        self.kinds = KINDS[:kinds]
        self._partner = dict(self.kinds)  # of each opening bracket
        self.depth, self.length = depth, length
        self.skills = ("open", *(f"close {depth}" for depth in range(1, depth + 1)), SPELLING)

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: which way the depth goes at each place, and which kind opens."""
        total, p_of_depth = 0.0, {0: 1.0}
        for length in range(self.length):
            later: dict[int, float] = defaultdict(float)
            for depth, p in p_of_depth.items():
                opens = self.p_open(length, depth)
                total += p * (entropy({"open": opens, "close": 1 - opens}) + opens * math.log(len(self.kinds)))
                later[depth + 1] += p * opens
                later[depth - 1] += p * (1 - opens)
            p_of_depth = {depth: p for depth, p in later.items() if p}
        return total

    def begin(self) -> Open:
        return 0, ""

    def following(self, state: Open) -> Mapping[str, float]:
        length, unclosed = state
        if length == self.length:
            return {END: 1.0}
        opens = self.p_open(length, len(unclosed))
        probabilities = {kind[0]: opens / len(self.kinds) for kind in self.kinds} if opens else {}
        if opens < 1:
            probabilities[self._partner[unclosed[-1]]] = 1 - opens
        return probabilities

    def after(self, state: Open, symbol: str) -> Open:
        length, unclosed = state
        return length + 1, unclosed + symbol if symbol in self._partner else unclosed[:-1]

    def skill(self, state: Open, symbol: str) -> str:
        return "open" if symbol in self._partner else f"close {len(state[1])}"

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """A closing bracket is decided by the one that it closes."""
        unclosed: list[int] = []
        for i, symbol in enumerate(symbols[:place]):
            if symbol in self._partner:
                unclosed.append(i)
            else:
                unclosed.pop()
        return () if symbols[place] in self._partner else unclosed[-1:]

    def p_open(self, length: int, depth: int) -> float:
        """The probability that a bracket opens after this many symbols, at this depth."""
        may_open = depth < self.depth and depth < self.length - length
        return (0.5 if depth else 1.0) if may_open else 0.0

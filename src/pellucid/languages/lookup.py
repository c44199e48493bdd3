"""Pairs of a key and its value, and questions about them: how much does a model remember?

    a 3 c 1 b 3 : c 1 a 3

Keys and values are chance, and so is which key is asked for; but after the colon each value is certain to a reader who
remembers the pairs. Attention looks them up; a recurrent network has to carry all of them in its state (Arora et al.
2024).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pellucid.languages.known import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, uniform

DISTANCES = (8, 16, 32, 64)  # symbols from a value to its repetition


class Read(NamedTuple):
    """The symbols so far, and the value of each key among them with its place."""

    symbols: tuple[str, ...]
    value_of: Mapping[str, tuple[str, int]]


class Lookup(SymbolLanguage[Read]):
    """Documents of `pairs` pairs from `keys` keys and `values` values, and then `queries` questions with answers."""

    skills = ("pairs", *(f"recall to {distance}" for distance in DISTANCES), "recall beyond", SPELLING)

    def __init__(self, keys: int, values: int, pairs: int, queries: int) -> None:
        self.keys = NAMES[:keys]
        self.values = [str(value) for value in range(values)]
        self.pairs, self.queries = pairs, queries

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: ordered keys without repetition, free values, free questions."""
        keys = math.lgamma(len(self.keys) + 1) - math.lgamma(len(self.keys) - self.pairs + 1)
        return keys + self.pairs * math.log(len(self.values)) + self.queries * math.log(self.pairs)

    def begin(self) -> Read:
        return Read((), {})

    def following(self, state: Read) -> Mapping[str, float]:
        place = len(state.symbols)
        if place < 2 * self.pairs:
            free = [key for key in self.keys if key not in state.value_of]
            return uniform(self.values if place % 2 else free)
        if place == 2 * self.pairs:
            return {":": 1.0}
        if place == 2 * self.pairs + 1 + 2 * self.queries:
            return {END: 1.0}
        if (place - 2 * self.pairs) % 2:
            return uniform(list(state.value_of))
        return {state.value_of[state.symbols[-1]][0]: 1.0}

    def after(self, state: Read, symbol: str) -> Read:
        place = len(state.symbols)
        is_value = place < 2 * self.pairs and place % 2
        told = {state.symbols[-1]: (symbol, place)} if is_value else {}
        return Read((*state.symbols, symbol), {**state.value_of, **told})

    def skill(self, state: Read, symbol: str) -> str:
        place = len(state.symbols)
        if place == 2 * self.pairs:
            return SPELLING
        if place < 2 * self.pairs or (place - 2 * self.pairs) % 2:
            return "pairs"
        distance = place - state.value_of[state.symbols[-1]][1]
        return next((f"recall to {limit}" for limit in DISTANCES if distance <= limit), "recall beyond")

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """An answer is decided by the value beside its key."""
        is_answer = place > 2 * self.pairs and (place - 2 * self.pairs) % 2 == 0
        return (symbols.index(symbols[place - 1]) + 1,) if is_answer else ()

"""Pairs of a key and its value, and questions about them: how much does a model remember?

    a 3 c 1 b 3 : c 1 a 3

Keys and values are chance, and so is which key is asked for; but after the colon each value is certain to a reader who
remembers the pairs. Attention looks them up; a recurrent network has to carry all of them in its state (Arora et al.
2024).
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, SymbolLanguage, uniform

DISTANCES = (8, 16, 32, 64)  # symbols from a value to its repetition


class Read(NamedTuple):
    """The symbols so far, and the value of each key among them with its place."""

    symbols: tuple[str, ...]
    value_of: Mapping[str, tuple[str, int]]


class Lookup(SymbolLanguage[Read]):
    """Documents of pairs from `keys` keys and `values` values, and then `queries` questions with answers.

    pairs, fewest_pairs: each document draws its number of pairs, evenly, between these two.
    """

    skills = ("pairs", *(f"recall to {distance}" for distance in DISTANCES), "recall beyond", SPELLING)

    def __init__(self, keys: int, values: int, pairs: int, queries: int, fewest_pairs: int | None = None) -> None:
        self.keys = NAMES[:keys]
        self.values = [str(value) for value in range(values)]
        self.n_pairs = range(pairs if fewest_pairs is None else fewest_pairs, pairs + 1)
        self.queries = queries

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: the number of pairs, ordered keys, free values, free questions."""
        return math.log(len(self.n_pairs)) + fmean(self._entropy_nats(n) for n in self.n_pairs)

    def _entropy_nats(self, pairs: int) -> float:
        keys = math.lgamma(len(self.keys) + 1) - math.lgamma(len(self.keys) - pairs + 1)
        return keys + pairs * math.log(len(self.values)) + self.queries * math.log(pairs)

    def begin(self) -> Read:
        return Read((), {})

    def following(self, state: Read) -> Mapping[str, float]:
        place, pairs = len(state.symbols), len(state.value_of)
        if ":" not in state.symbols:
            if place % 2:
                return uniform(self.values)
            p_colon = 1 / (self.n_pairs[-1] + 1 - pairs) if pairs in self.n_pairs else 0.0
            free = [key for key in self.keys if key not in state.value_of] if p_colon < 1 else []
            next_pair = {key: (1 - p_colon) / len(free) for key in free}
            return {**next_pair, ":": p_colon} if p_colon else next_pair
        if place == 2 * pairs + 1 + 2 * self.queries:
            return {END: 1.0}
        if (place - 2 * pairs) % 2:
            return uniform(list(state.value_of))
        return {state.value_of[state.symbols[-1]][0]: 1.0}

    def after(self, state: Read, symbol: str) -> Read:
        place = len(state.symbols)
        is_value = place % 2 and ":" not in state.symbols
        told = {state.symbols[-1]: (symbol, place)} if is_value else {}
        return Read((*state.symbols, symbol), {**state.value_of, **told})

    def skill(self, state: Read, symbol: str) -> str:
        place = len(state.symbols)
        if symbol == ":" and len(state.value_of) == self.n_pairs[-1]:
            return SPELLING
        if ":" not in state.symbols or (place - 2 * len(state.value_of)) % 2:
            return "pairs"
        distance = place - state.value_of[state.symbols[-1]][1]
        return next((f"recall to {limit}" for limit in DISTANCES if distance <= limit), "recall beyond")

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """An answer is decided by the value beside its key."""
        since_colon = place - symbols.index(":") if ":" in symbols[:place] else 0
        is_answer = since_colon > 0 and since_colon % 2 == 0
        return (symbols.index(symbols[place - 1]) + 1,) if is_answer else ()

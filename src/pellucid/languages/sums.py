"""Sums of two numbers, digit by digit or modulo p: when does a model stop remembering and begin to calculate?

    3 7 + 5 8 = 0 9 5          digits, written as usual
    7 3 + 8 5 = 5 9 0          digits backwards: each depends on those that came before
    5 + 6 = 4                  modulo 7

The two numbers are chance and their sum is certain. Some of the pairs are never trained on: only they can show whether
a model has learned to add (Power et al. 2022; Lee et al. 2023).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, SymbolLanguage, uniform

Order = Literal["forwards", "backwards"]
PLUS, EQUALS = "+", "="
DIGITS = "0123456789"


class Sums(SymbolLanguage[tuple[str, ...]]):
    """Sums a + b = c, all pairs equally likely: numbers of `digits` digits, or all below `modulus`.

    The state is the symbols so far. skills: `numbers` are chance; digits of the sum into which nothing is carried take
    `digits`, the others `carries`. Modulo p all sums are `digits`.
    """

    skills = ("numbers", "digits", "carries", SPELLING)

    def __init__(self, digits: int, order: Order, modulus: int | None) -> None:
        self.digits, self.order, self.modulus = 1 if modulus else digits, order, modulus
        self.names = [str(n) for n in range(modulus)] if modulus else list(DIGITS)

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: two free numbers."""
        return 2 * self.digits * math.log(len(self.names))

    def document(self, a: int, b: int) -> tuple[str, ...]:
        """The symbols of a + b = c."""
        if self.modulus:
            return str(a), PLUS, str(b), EQUALS, str((a + b) % self.modulus)
        return *self._digits(a, 0), PLUS, *self._digits(b, 0), EQUALS, *self._digits(a + b, 1)

    @property
    def n_pairs(self) -> int:
        return int(len(self.names) ** (2 * self.digits))

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of numbers."""
        numbers = range(len(self.names) ** self.digits)
        return [(a, b) for a in numbers for b in numbers]

    def begin(self) -> tuple[str, ...]:
        return ()

    def following(self, state: tuple[str, ...]) -> Mapping[str, float]:
        place, n = len(state), self.digits
        if place == n:
            return {PLUS: 1.0}
        if place < 2 * n + 1:
            return uniform(self.names)
        document = self.document(*self._numbers(state))
        return {(*document, END)[place]: 1.0}

    def after(self, state: tuple[str, ...], symbol: str) -> tuple[str, ...]:
        return (*state, symbol)

    def skill(self, state: tuple[str, ...], symbol: str) -> str:
        if symbol in (PLUS, EQUALS):
            return SPELLING
        place = len(state) - (2 * self.digits + 2)  # in the sum
        if place < 0:
            return "numbers"
        if self.modulus:
            return "digits"
        a, b = self._numbers(state)
        worth = 10 ** (place if self.order == "backwards" else self.digits - place)
        return "carries" if a % worth + b % worth >= worth else "digits"

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """A digit is decided by the two of its worth, and for the carry by smaller ones, down to two that are not 9."""
        n = self.digits
        if place <= 2 * n + 1:
            return ()
        if self.modulus:
            return 0, 2
        backwards, deciding = self.order == "backwards", list[int]()
        power = place - (2 * n + 2) if backwards else 3 * n + 2 - place  # of ten
        for each in reversed(range(min(power + 1, n))):
            first = each if backwards else n - 1 - each
            deciding += (first, first + n + 1)
            if each < power and int(symbols[first]) + int(symbols[first + n + 1]) != 9:
                break
        return deciding

    def _numbers(self, symbols: tuple[str, ...]) -> tuple[int, int]:
        n = self.digits
        return self._number(symbols[:n]), self._number(symbols[n + 1 : 2 * n + 1])

    def _number(self, symbols: tuple[str, ...]) -> int:
        return int("".join(symbols[::-1] if self.order == "backwards" else symbols))

    def _digits(self, number: int, n_more: int) -> str:
        text = f"{number:0{self.digits + n_more}}"
        return text[::-1] if self.order == "backwards" else text

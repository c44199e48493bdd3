"""Sums of two numbers, digit by digit or modulo p: when does a model stop remembering and begin to calculate?

    3 7 + 5 8 = 0 9 5          digits, written as usual
    7 3 + 8 5 = 5 9 0          digits backwards: each depends on those that came before
    5 + 6 = 4                  modulo 7
    3 7 + 5 8 : 1 0 = 0 9 5    digits, with the carries as a thought, the last digit's first
    3 7 + 5 8 : 7 8 ? 1 5 3 5 ? 0 8 = 0 9 5    a tool: after ? it writes the sum of the two digits before

The two numbers are chance and their sum is certain. Some of the pairs are never trained on: only they can show whether
a model has learned to add (Power et al. 2022; Lee et al. 2023).
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, Question, SymbolLanguage, entropy, uniform
from pellucid.languages.thoughts import COLON, DOT, STEPS, THINK, TOOL, Thoughts, skills_of_thoughts

Order = Literal["forwards", "backwards"]
PLUS, EQUALS = "+", "="
DIGITS = "0123456789"
ANSWERS = ("digits", "carries")  # skills
ASK, CALL = THINK, 5  # what asks the tool, and the symbols of a call: two digits, ASK, and their sum


class Sums(SymbolLanguage[tuple[str, ...]]):
    """Sums a + b = c, all pairs equally likely: numbers of `digits` digits, or all below `modulus`.

    The state is the symbols so far. skills: `numbers` are chance; digits of the sum into which nothing is carried take
    `digits`, the others `carries`. Modulo p all sums are `digits`. A thought holds the carries, dots, the carries of
    another sum, or the sums of two digits each, or it is there in half of the documents (see `thoughts.py`).
    """

    def __init__(self, digits: int, order: Order, modulus: int | None, thoughts: Thoughts = "none") -> None:
        self.digits, self.order, self.modulus, self.thoughts = 1 if modulus else digits, order, modulus, thoughts
        self.skills = ("numbers", *ANSWERS, *skills_of_thoughts(thoughts, ANSWERS), SPELLING)
        self.names = [str(n) for n in range(modulus)] if modulus else list(DIGITS)

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: two free numbers, and what of a thought is chance."""
        of_carries = self.digits * entropy(carry_of_another("0"))  # as large as after a carry
        of_thought = {"shuffled": of_carries, "optional": math.log(2)}
        return 2 * self.digits * math.log(len(self.names)) + of_thought.get(self.thoughts, 0.0)

    def document(self, a: int, b: int, rng: random.Random) -> tuple[str, ...]:
        """The symbols of a + b = c, with a thought where there is one. What of it is chance is drawn."""
        if self.modulus:
            return str(a), PLUS, str(b), EQUALS, str((a + b) % self.modulus)
        question = (*self._digits(a, 0), PLUS, *self._digits(b, 0))
        if self.thoughts == "none" or (self.thoughts == "optional" and rng.random() < 0.5):
            return *question, EQUALS, *self._digits(a + b, 1)
        numbers = [rng.randrange(10**self.digits) for _ in "ab"] if self.thoughts == "shuffled" else [a, b]
        return *question, COLON, *self._thought(*numbers), EQUALS, *self._digits(a + b, 1)

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
        a, b = self._numbers(state)
        if self.modulus:
            return {(EQUALS, str((a + b) % self.modulus), END)[place - 3]: 1.0}
        if place == 2 * n + 1:
            marks = {"none": (EQUALS,), "optional": (COLON, EQUALS)}
            return uniform(marks.get(self.thoughts, (COLON,)))
        step, n_steps = place - (2 * n + 2), self._n_steps(state)
        if self.thoughts == "shuffled" and step < n_steps:
            return carry_of_another(state[-1] if step else "0")
        if n_steps and step <= n_steps:
            return {(*self._thought(a, b), EQUALS)[step]: 1.0}
        return {(*self._digits(a + b, 1), END)[self._place_in_sum(state)]: 1.0}

    def after(self, state: tuple[str, ...], symbol: str) -> tuple[str, ...]:
        return (*state, symbol)

    def skill(self, state: tuple[str, ...], symbol: str) -> str:
        n = self.digits
        if len(state) == 2 * n + 1 and self.thoughts == "optional":
            return "numbers"  # chance, as they are
        if symbol in (PLUS, EQUALS, COLON, DOT, ASK):
            return SPELLING
        place = self._place_in_sum(state)
        if len(state) < 2 * n + 2:
            return "numbers"
        if self.modulus:
            return "digits"
        if place < 0:
            return TOOL if self.environment(state) else STEPS
        a, b = self._numbers(state)
        worth = 10 ** (place if self.order == "backwards" else n - place)
        answer = "carries" if a % worth + b % worth >= worth else "digits"
        return f"{answer} after steps" if self.thoughts == "optional" and self._n_steps(state) else answer

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """A digit is decided by the two of its worth, and for the carry by smaller ones, down to two that are not 9.

        After steps, and for a step, the carry is decided by the step that says it. What a tool has written stands for
        the two digits.
        """
        n, before = self.digits, tuple(symbols[:place])
        n_steps = self._n_steps(before)
        step, in_sum = place - (2 * n + 2), place - (2 * n + 2) - n_steps - (n_steps > 0)
        if step < 0 or (in_sum < 0 and (step == n_steps or self.thoughts in ("filler", "shuffled"))):
            return ()
        if self.modulus:
            return 0, 2
        backwards, says = self.order == "backwards", n_steps > 0 and self.thoughts in ("way", "optional")
        if self.thoughts == "tool" and in_sum < 0:
            call, part = divmod(step, CALL)
            first, asked = call if backwards else n - 1 - call, place - part
            return ((first,), (first + n + 1,), (), (asked, asked + 1), (asked, asked + 1))[part]
        power = step if in_sum < 0 else in_sum if backwards else n - in_sum  # of ten
        deciding = [2 * n + 1] if self.thoughts == "optional" else []  # the mark says what comes here
        deciding += [2 * n + 1 + power] if says and power else []
        for each in reversed(range(min(power + 1, n))):
            first = each if backwards else n - 1 - each
            if self.thoughts == "tool":
                ones = 2 * n + 1 + CALL * (each + 1)
                deciding += (ones - 1, ones) if each < power else (ones,)
            elif each == power or not says:
                deciding += (first, first + n + 1)
            if says or (each < power and int(symbols[first]) + int(symbols[first + n + 1]) != 9):
                break
        return deciding

    def environment(self, symbols: Sequence[str]) -> str:
        """The tool writes the sum of any two digits before ASK, the tens and then the ones."""
        for n_written in (0, 1) if self.thoughts == "tool" else ():
            match symbols[-3 - n_written :]:
                case [first, second, mark, *written] if mark == ASK and {first, second, *written} <= {*self.names}:
                    return f"{int(first) + int(second):02}"[n_written]
        return ""

    def questions(self, symbols: Sequence[str]) -> list[Question]:
        """The sum, of which nothing is right unless all of it is; its kind says whether there is a carry."""
        begin = 2 * self.digits + 2
        answer = begin - self._place_in_sum(tuple(symbols[:begin]))
        kinds = [self.skill(tuple(symbols[:place]), symbols[place]) for place in range(answer, len(symbols))]
        return [Question(begin, answer, len(symbols), min(kinds))]  # carries come before digits

    def _n_steps(self, symbols: tuple[str, ...]) -> int:
        """The number of symbols between a colon and =."""
        length = self.digits * (CALL if self.thoughts == "tool" else 1)
        return length if symbols[2 * self.digits + 1 : 2 * self.digits + 2] == (COLON,) else 0

    def _place_in_sum(self, state: tuple[str, ...]) -> int:
        """The place of the next symbol in the sum; negative before it."""
        n_steps = self._n_steps(state)
        return len(state) - (2 * self.digits + 2) - n_steps - (n_steps > 0)

    def _thought(self, a: int, b: int) -> str:
        """Dots, or sums of two digits, or the carry out of each: that of the last digit first."""
        if self.thoughts == "filler":
            return DOT * self.digits
        if self.thoughts == "tool":
            digits = [(a // 10**n % 10, b // 10**n % 10) for n in range(self.digits)]
            return "".join(f"{first}{second}{ASK}{first + second:02}" for first, second in digits)
        return "".join(str(int(a % 10**n + b % 10**n >= 10**n)) for n in range(1, self.digits + 1))

    def _numbers(self, symbols: tuple[str, ...]) -> tuple[int, int]:
        n = self.digits
        return self._number(symbols[:n]), self._number(symbols[n + 1 : 2 * n + 1])

    def _number(self, symbols: tuple[str, ...]) -> int:
        return int("".join(symbols[::-1] if self.order == "backwards" else symbols))

    def _digits(self, number: int, n_more: int) -> str:
        text = f"{number:0{self.digits + n_more}}"
        return text[::-1] if self.order == "backwards" else text


def carry_of_another(before: str) -> dict[str, float]:
    """p(carry | carry of the digit before) in a sum of two random numbers: 45 of 100 pairs of digits have one."""
    p = 0.55 if before == "1" else 0.45
    return {"0": 1 - p, "1": p}

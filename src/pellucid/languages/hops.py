"""Arrows from name to name, and questions that follow several of them: how many layers do k steps take?

    c > a a > b b > c : a 2 c

The arrows are a random permutation, told in random order. "a 2" asks where two steps from a lead. Every answer is
certain, but a layer of attention follows one arrow at a time, or doubles the steps (Sanford et al. 2024).

Before its answer a question may have a thought (see `thoughts.py`), here of three steps from a to b to c to a:

    : a 3 b c a        way: the names on the way
    : a 3 . . a        filler
    : a 3 c a a        shuffled: the way from another name, here b
    a 3 ? b c a        optional: half of the questions end with ? and have one,
    a 3 : a            half with : and have none; whoever writes the mark knows the question
"""

import math
from collections.abc import Mapping, Sequence

from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, NAMES, Question, SymbolLanguage, uniform
from pellucid.languages.thoughts import COLON, DOT, STEPS, THINK, Thoughts, skills_of_thoughts

ARROW = ">"
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Hops(SymbolLanguage[tuple[str, ...]]):
    """Documents of an arrow from each of `names` names, and `queries` questions about 1 to `hops` steps.

    The state is the symbols so far.
    """

    def __init__(self, names: int, hops: int, queries: int, thoughts: Thoughts = "none") -> None:
        self.names = NAMES[:names]
        self.hops, self.queries, self.thoughts = hops, queries, thoughts
        answers = tuple(f"{COUNTS[n]} hop{'s' * (n > 1)}" for n in range(1, hops + 1))
        self.skills = ("arrows", *answers, *skills_of_thoughts(thoughts, answers), SPELLING)
        self._parts = ("name", "number", "mark") if thoughts == "optional" else ("mark", "name", "number")
        self._name, self._number, self._mark = map(self._parts.index, ("name", "number", "mark"))

    @property
    def entropy_nats(self) -> float:
        """The exact entropy of a document: an order of names, a permutation, and free questions.

        Of thoughts, only the name from which a shuffled one starts is chance, and whether there is an optional one.
        """
        n = len(self.names)
        of_question = math.log(n * self.hops)
        of_thought = {"shuffled": (self.hops - 1) / self.hops * math.log(n), "optional": math.log(2)}
        return 2 * math.lgamma(n + 1) + self.queries * (of_question + of_thought.get(self.thoughts, 0.0))

    def begin(self) -> tuple[str, ...]:
        return ()

    def following(self, state: tuple[str, ...]) -> Mapping[str, float]:
        kind, question = self._place(state)
        match kind:
            case "told":
                told = state[0::3] if len(state) % 3 == 0 else state[2::3]
                return uniform([name for name in self.names if name not in told])
            case "arrow" | "end":
                return {ARROW if kind == "arrow" else END: 1.0}
            case "mark":
                return uniform((COLON, THINK) if self.thoughts == "optional" else (COLON,))
            case "name":
                return uniform(self.names)
            case "number":
                return uniform([str(n) for n in range(1, self.hops + 1)])
            case "step" if self.thoughts == "filler":
                return {DOT: 1.0}
            case "step" if self.thoughts == "shuffled" and len(question) == 3:
                return uniform(self.names)
            case "step":
                return {self._arrows(state)[self._name_before(question)]: 1.0}
            case _:
                return {self._way(state, question)[-1]: 1.0}

    def after(self, state: tuple[str, ...], symbol: str) -> tuple[str, ...]:
        return (*state, symbol)

    def skill(self, state: tuple[str, ...], symbol: str) -> str:
        kind, question = self._place(state)
        if kind == "answer":
            return self.skills[int(question[self._number]) + self.hops * (question[self._mark] == THINK)]
        if kind == "step":
            return SPELLING if symbol == DOT else STEPS
        return SPELLING if kind == "arrow" or (kind == "mark" and self.thoughts != "optional") else "arrows"

    def sources(self, symbols: Sequence[str], place: int) -> Sequence[int]:
        """An answer is decided by the ends of all arrows on the way; a step, and an answer after steps, by one."""
        kind, question = self._place(tuple(symbols[:place]))
        ends = symbols[2 : 3 * len(self.names) : 3]
        on_the_way = self.thoughts in ("way", "optional")
        if kind == "step" and (on_the_way or (self.thoughts == "shuffled" and len(question) > 3)):
            names = [self._arrows(symbols)[self._name_before(question)]]
        elif kind == "answer":
            way = self._way(symbols, question)
            names = way[-1:] if on_the_way and len(question) > 3 else way
        else:
            return ()
        return [3 * ends.index(name) + 2 for name in names]

    def questions(self, symbols: Sequence[str]) -> list[Question]:
        found, begin = list[Question](), 3 * len(self.names) + 3
        for _ in range(self.queries):
            answer = begin + self._n_steps(symbols, begin - 3)
            kind = self.skill(tuple(symbols[:answer]), symbols[answer])
            found.append(Question(begin, answer, answer + 1, kind))
            begin = answer + 4
        return found

    def _place(self, state: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The kind of symbol that comes next, and the symbols so far of its question."""
        if len(state) < 3 * len(self.names):
            return "arrow" if len(state) % 3 == 1 else "told", ()
        begin, n_answered = 3 * len(self.names), 0
        while len(state) > (answer := begin + 3 + self._n_steps(state, begin)):
            begin, n_answered = answer + 1, n_answered + 1
        if n_answered == self.queries:
            return "end", ()
        question = state[begin:]
        if len(question) < 3:
            return self._parts[len(question)], question
        return "step" if len(state) < answer else "answer", question

    def _n_steps(self, symbols: Sequence[str], begin: int) -> int:
        """The length of the thought of the question that begins at this place."""
        if self.thoughts == "none" or len(symbols) < begin + 3:
            return 0
        is_without = self.thoughts == "optional" and symbols[begin + self._mark] == COLON
        return 0 if is_without else int(symbols[begin + self._number]) - 1

    def _arrows(self, symbols: Sequence[str]) -> dict[str, str]:
        return dict(zip(symbols[0 : 3 * len(self.names) : 3], symbols[2 : 3 * len(self.names) : 3], strict=True))

    def _way(self, symbols: Sequence[str], question: Sequence[str]) -> list[str]:
        """The names to which each step leads from that of the question."""
        arrows, name, way = self._arrows(symbols), question[self._name], []
        for _ in range(int(question[self._number])):
            name = arrows[name]
            way.append(name)
        return way

    def _name_before(self, question: Sequence[str]) -> str:
        """The name from which the next step goes on."""
        return question[-1 if len(question) > 3 else self._name]

"""Does an answer do as it was told? The grammar knows, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pellucid.corpora.fables import Fables
from pellucid.corpora.instructions.wordings import Task


class Settled(NamedTuple):
    """After how many characters of an answer each half of its reward is certain; one more than it has: at its end."""

    whole: int
    obeys: int


@dataclass(frozen=True)
class Verdict:
    """What is to be said of an answer.

    whole: it is a fable to the last character. broken_at, broken_by: the first character with which no fable can go on,
    and the skill that the right one would have needed; None for a whole fable, and for one that just stops too early.
    obeys: what was asked for was told before that: the hero's kind, and such an outcome that no other moral can follow.
    So a fault before the moral is certain costs both halves: the grammar cannot read past it.
    """

    whole: bool
    broken_at: int | None
    broken_by: str | None
    obeys: bool

    @property
    def reward(self) -> float:
        """1 for a whole fable that obeys, 0 for neither."""
        return 0.5 * self.whole + 0.5 * self.obeys


def judge(fables: Fables, task: Task, text: str) -> Verdict:
    """Judges an answer. `fables`: of the world that the instruction speaks of. About a millisecond."""
    reading = fables.examine(text)
    asked = {"animal": task.animal, "moral": task.moral}
    obeys = all(reading.told.get(name) == value for name, value in asked.items() if value is not None)
    return Verdict(reading.whole, reading.broken_at, reading.broken_by, obeys)


def settled(fables: Fables, task: Task, text: str, verdict: Verdict) -> Settled:
    """Where the verdict on an answer was made: at the character that broke it, at the one that told what was asked for,
    or made it impossible. So it is known which token has earned a reward, or lost it.
    """
    whole = len(text) + 1 if verdict.broken_at is None else verdict.broken_at + 1
    obeys = fables.settled_at(text, task.animal, task.moral)
    return Settled(whole, whole if obeys is None else obeys)

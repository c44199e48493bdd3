"""The exact judgement of an answer, by the grammar."""

from dataclasses import dataclass
from typing import NamedTuple

from pellucid.corpora.instructions.wordings import Task
from pellucid.languages.fables import Fables


class Settled(NamedTuple):
    """The number of characters of an answer after which each half of its reward is certain; length + 1 for its end."""

    whole: int
    obeys: int


@dataclass(frozen=True)
class Verdict:
    """The judgement of an answer.

    whole: it is a complete fable. broken_at, broken_by: the first impossible character, and the skill that the right
    one would have needed; None for a complete fable, and for one that merely stops too early.
    obeys: before that, the hero is of the requested kind, and no other moral than the requested one is possible.
    So a fault before the moral is certain costs both halves: the grammar cannot read past it.
    """

    whole: bool
    broken_at: int | None
    broken_by: str | None
    obeys: bool

    @property
    def reward(self) -> float:
        """Half a point for a complete fable, and half for one that obeys."""
        return 0.5 * self.whole + 0.5 * self.obeys


def judge(fables: Fables, task: Task, text: str) -> Verdict:
    """The verdict on an answer. fables: those of the instruction's world. Takes about a millisecond."""
    reading = fables.examine(text)
    required = {"animal": task.animal, "moral": task.moral}
    obeys = all(reading.told.get(name) == value for name, value in required.items() if value is not None)
    return Verdict(reading.whole, reading.broken_at, reading.broken_by, obeys)


def settled(fables: Fables, task: Task, text: str, verdict: Verdict) -> Settled:
    """The places where the verdict on an answer became certain, which show the token that earned or lost a reward.

    That is the character that broke it, and the one that fulfilled the task or made that impossible.
    """
    complete_at = len(text) + 1 if verdict.broken_at is None else verdict.broken_at + 1
    obeys_at = fables.settled_at(text, task.animal, task.moral)
    return Settled(complete_at, complete_at if obeys_at is None else obeys_at)

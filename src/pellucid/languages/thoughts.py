"""Thoughts: what a document of `hops` or `sums` may write between a question and its answer.

none: nothing.   way: the steps that lead to the answer.   filler: as many dots, so as much time to compute, and nothing
to read.   shuffled: the steps of another question.   optional: the steps in half of the cases, marked.

Steps follow from what was told before, so they hold no information, and what they gain is computation. Which steps are
shuffled in, and whether there are any, is chance. All of it has exact probabilities.
"""

from typing import Literal

Thoughts = Literal["none", "way", "filler", "shuffled", "optional"]
COLON, THINK, DOT = ":", "?", "."
STEPS = "steps"  # the skill


def skills_of_thoughts(thoughts: Thoughts, answers: tuple[str, ...]) -> tuple[str, ...]:
    """The skills that thoughts add to those of the answers. Where they are optional, answers after them count apart."""
    after = tuple(f"{answer} after steps" for answer in answers) if thoughts == "optional" else ()
    return after if thoughts in ("none", "filler") else (*after, STEPS)

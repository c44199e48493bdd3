"""Thoughts: what a document of `hops` or `sums` may write between a question and its answer.

none: nothing.   way: the steps that lead to the answer.   filler: as many dots, so as much time to compute, and nothing
to read.   shuffled: the steps of another question.   optional: the steps in half of the cases, marked.   tool: sums of
two digits, for which the writer asks a tool. What the tool writes, no model has to learn or to write (`TOOL`).

Steps follow from what was told before, so they hold no information, and what they gain is computation. Which steps are
shuffled in, and whether there are any, is chance. All of it has exact probabilities.
"""

from typing import Literal

Thoughts = Literal["none", "way", "filler", "shuffled", "optional", "tool"]  # the last of sums alone
COLON, THINK, DOT = ":", "?", "."
STEPS, TOOL = "steps", "tool"  # skills


def skills_of_thoughts(thoughts: Thoughts, answers: tuple[str, ...]) -> tuple[str, ...]:
    """The skills that thoughts add to those of the answers. Where they are optional, answers after them count apart."""
    after = tuple(f"{answer} after steps" for answer in answers) if thoughts == "optional" else ()
    steps = () if thoughts in ("none", "filler") else (STEPS, TOOL) if thoughts == "tool" else (STEPS,)
    return *after, *steps

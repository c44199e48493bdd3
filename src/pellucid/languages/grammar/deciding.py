"""Dependencies between words of a fable: a name decides its repetitions, an animal its call, a count the remainder.

A story consists of pieces: fixed words, the texts of choices, and the repetitions in holes. To see what a piece depends
on, tell the story again with another option of one choice, and all other choices unchanged. Some pieces change. So

    an earlier piece decides a later one, if for some choice the later one changes, and never unless the earlier does.

After "a fox named Hazel", the call "yapped" is decided by "fox" and not by "Hazel"; "she" and a second "Hazel" by the
first. The "she" does not decide the second "Hazel": with other names it would be "she", too.

This finds only dependencies between words: where another option leads to other choices, the rest cannot be told again.
So morals, which depend on the whole course of a story, have no deciding words.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from pellucid.languages.grammar.grammar import Fork, Piece
from pellucid.languages.language import Decided

Drawn = Sequence[tuple[Fork, int]]


def decided_pieces(drawn: Drawn) -> list[Decided]:
    """The pieces of a story, given by its choices, that earlier pieces decide, in order."""
    pieces_of_choices = [fork.write_pieces(index)[0] for fork, index in drawn]
    texts = [text for pieces in pieces_of_choices for text, _ in pieces]
    decides_PP = np.zeros((len(texts), len(texts)), dtype=bool)  # does the piece of this row decide that of the column
    n_before = 0
    for place, (fork, index) in enumerate(drawn):
        _, after = fork.write(index)
        if after is None or after.state is not fork.state:  # the option is remembered, or this is the last choice
            others = (tell_again(drawn, pieces_of_choices, place, other) for other in fork.allowed() if other != index)
            changes_OP = np.array(
                [[a != b for a, b in zip(other, texts[n_before:], strict=True)] for other in others if other]
            )
            if len(changes_OP):
                decides_PP[n_before:, n_before:] |= always_before(changes_OP)
        n_before += len(pieces_of_choices[place])
    spans = list(pairwise(accumulate(map(len, texts), initial=0)))
    return [
        Decided(*spans[later], [spans[earlier] for earlier in np.flatnonzero(decides_PP[:, later])])
        for later in np.flatnonzero(decides_PP.any(axis=0))
    ]


def always_before(changes_OP: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask (P, P): does the row's piece change whenever the column's, a later one, does (and does that ever change)?

    changes_OP: the pieces that change with each option.
    """
    changes = changes_OP.astype(np.int64)
    n_alone_PP = (1 - changes).T @ changes
    return np.triu((n_alone_PP == 0) & changes_OP.any(axis=0), k=1)


def tell_again(drawn: Drawn, told: Sequence[Sequence[Piece]], place: int, other: int) -> list[str] | None:
    """The pieces from this place on, with another option there, and all other choices unchanged.

    None if the story cannot continue like this.
    """
    texts: list[str] = []
    fork, index = drawn[place][0], other
    for i in range(place, len(drawn)):
        if i > place:
            unchanged = same_option(*drawn[i], fork)
            if unchanged is None:
                return None
            index = unchanged
        pieces, after = fork.write_pieces(index)
        has_same_holes = [hole for _, hole in pieces] == [hole for _, hole in told[i]]
        if not has_same_holes or (after is None) != (i + 1 == len(drawn)):
            return None
        texts += [text for text, _ in pieces]
        if after is not None:
            fork = after
    return texts


def same_option(old_fork: Fork, old_index: int, fork: Fork) -> int | None:
    """The option of this choice that is equal to the old one's; None for a different choice, or if there is none."""
    if next(fork.ahead()) != next(old_fork.ahead()):
        return None
    if fork.rule is old_fork.rule:
        return old_index if old_index != fork.excluded else None
    parts = old_fork.rule.options[old_index].parts
    return next((i for i in fork.allowed() if fork.rule.options[i].parts == parts), None)

"""One text while it is written: what is wanted of it, and the tokens that it has so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from pellucid.generation.in_step import latest
from pellucid.generation.sampling import Sampling
from pellucid.generation.stream import FinishReason, Piece, TextStream, Token

if TYPE_CHECKING:
    from pellucid.generation.constraints import Constraint

OWN = Sampling()  # from the model's own distribution
NUMBERS_AT_ONCE = 256  # random numbers: to draw one at a time takes longer


@dataclass(eq=False, slots=True)
class Writing:
    """A text to write after a prompt of at least one token, and what has been written of it.

    seed: the same numbers draw the same text, (seed, which of several) for instance; None draws another each time.
    text: gets the tokens, and ends the writing with a stop string. n_likeliest: with each token in `text` come ln p of
    it and of so many of the likeliest; None asks for none. It is the model's own distribution, before temperature and
    the like. scores_prompt: the same for the prompt's tokens. keeps_log_p: ln p of each token in the distribution that
    it was drawn from, at its temperature. stop_ids: others that end this text. min_new_tokens: so many come before
    any of them. constraint: what form the text must have; it may drop the text, which then begins again. has_ended: set
    it to end the text early. error: what cut it short, while the others go on.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling = OWN
    seed: Sequence[int] | None = None
    text: TextStream | None = None
    keeps_log_p: bool = False
    n_likeliest: int | None = None
    scores_prompt: bool = False
    stop_ids: Sequence[int] = ()
    min_new_tokens: int = 0
    constraint: Constraint | None = None

    token_ids: list[int] = field(default_factory=list, init=False)  # with the one that ended it
    log_p: list[float] = field(default_factory=list, init=False)
    prompt_tokens: list[Token] = field(default_factory=list, init=False)  # those that were read, with their scores
    finish_reason: FinishReason | None = field(default=None, init=False)
    has_ended: bool = field(default=False, init=False)
    error: Exception | None = field(default=None, init=False)
    slot: int = field(default=-1, init=False)
    unread: list[int] = field(default_factory=list, init=False)
    numbers: list[float] = field(default_factory=list, init=False)  # drawn already, the next one last
    generator: np.random.Generator | None = field(default=None, init=False)

    @property
    def pieces(self) -> Sequence[Piece]:
        return self.text.pieces if self.text else ()

    @property
    def is_own(self) -> Sequence[bool]:
        """Whether each token is the model's own, and not that of a tool."""
        return getattr(self.constraint, "is_own", [True] * len(self.token_ids))

    def begin(self, slot: int, max_positions: int) -> None:
        self.slot, self.unread = slot, list(self.prompt_ids[-max_positions:])
        self.generator = np.random.Generator(np.random.Philox(None if self.seed is None else list(self.seed)))

    def uniform(self) -> float:
        """The next of its own numbers in [0, 1)."""
        if not self.numbers:
            assert self.generator is not None
            self.numbers = self.generator.random(min(NUMBERS_AT_ONCE, self.max_new_tokens), np.float32).tolist()[::-1]
        return self.numbers.pop()

    def add(self, token_id: int, is_stop: bool, scores_V: Tensor | None) -> None:
        """The next token."""
        self.token_ids.append(token_id)
        self.unread.append(token_id)
        is_last = len(self.token_ids) == self.max_new_tokens
        reason: FinishReason | None = "end_of_text" if is_stop else "length" if is_last else None
        if self.text:
            if is_stop:
                self.text.end("end_of_text")
            else:
                self.text.add(token_id, *self._scored(token_id, scores_V), is_last=is_last)
            reason = self.text.finish_reason
        if self.constraint:
            with self.fails_alone():
                if self.constraint.drops(self, reason):
                    return
        if reason is not None:
            self.finish_reason, self.has_ended = reason, True

    def end(self, reason: FinishReason) -> None:
        if self.text:
            self.text.end(reason)
        self.finish_reason = self.text.finish_reason if self.text else reason
        self.has_ended = True

    def fail(self, error: Exception) -> None:
        self.error, self.has_ended = error, True

    def add_prompt_tokens(self, ids: Sequence[int], logits_TV: Tensor) -> None:
        """The scores of the tokens after these."""
        scores_TV = logits_TV.float().log_softmax(dim=-1)
        for id_, scores_V in zip([*ids[1:], self.unread[0]], scores_TV, strict=True):
            self.prompt_tokens.append(Token(id_, 0, *self._scored(id_, scores_V)))

    def latest(self, max_positions: int) -> list[int]:
        """Tokens to read when the state is emptied; before the first new one they are the prompt."""
        if not self.token_ids:
            return list(self.prompt_ids[-max_positions:])
        return latest([*self.prompt_ids, *self.token_ids], max_positions)

    @contextmanager
    def fails_alone(self) -> Iterator[None]:
        """An error in this block ends this text alone."""
        try:
            yield
        except Exception as error:
            self.fail(error)

    def _scored(self, token_id: int, scores_V: Tensor | None) -> tuple[float | None, list[tuple[int, float]]]:
        if scores_V is None or self.n_likeliest is None:
            return None, []
        best = scores_V.topk(min(self.n_likeliest, len(scores_V)))
        return scores_V[token_id].item(), list(zip(best.indices.tolist(), best.values.tolist(), strict=True))

"""Continuous batching: texts join and leave a batch at any step, each with its own settings.

    waiting    r  s
    slot 0     a a a a a a .            a text ends; at the next step its slot is another's
    slot 1     p p b b b b b b b        reads its prompt in pieces, between the steps of the others, then writes
    slot 2     . c c c c . d d d        one token per step
               ───────────────► steps

To wait until a whole batch has ended, as `generate` does, would leave most slots idle most of the time (Yu et al. 2022,
"Orca"). Here a text with a seed is the same alone and in a crowd: what is computed for a slot does not depend on the
others (`slots.py`), and each text draws its own random numbers.

Shapes: R texts that write, V vocabulary.
"""

from __future__ import annotations

import codecs
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import PellucidError, without_frames
from pellucid.generation.decoding import TOKENS_READ_AT_ONCE
from pellucid.generation.sampling import Sampling, are_distributions, next_token, no_distribution
from pellucid.generation.slots import make_slots
from pellucid.generation.text import FinishReason, first_stop, length_before_a_beginning, never_written
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

N_SLOTS = 16
OWN = Sampling()  # from the model's own distribution


@dataclass(frozen=True)
class Request:
    """One text to write after a prompt of at least one token.

    seed: the same numbers draw the same text, (seed, which of several) for instance; None draws another each time.
    n_likeliest: with each token come ln p of it and of so many of the likeliest; None asks for none. It is the model's
    own distribution, before temperature and the like. scores_prompt: the same for the prompt's tokens.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    sampling: Sampling = OWN
    stop: Sequence[str] = ()
    seed: Sequence[int] | None = None
    n_likeliest: int | None = None
    scores_prompt: bool = False


@dataclass(frozen=True)
class Token:
    """A token, where its text begins in the completion, in characters, and if asked for ln p of it and of others."""

    id: int
    offset: int
    log_p: float | None = None
    likeliest: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Piece:
    """The text and tokens that a step added. The last piece of a text says why it ended."""

    text: str
    tokens: Sequence[Token]
    finish_reason: FinishReason | None = None


@dataclass(eq=False)
class Writing:
    """A text while it is written. `pieces` grows; set `is_cancelled` to end it before the next token.

    error: the error that cut it short. The others go on.
    """

    request: Request
    pieces: list[Piece] = field(default_factory=list)
    prompt_tokens: list[Token] = field(default_factory=list)  # those that were read, if their scores are wanted
    n_new: int = 0
    is_cancelled: bool = False
    error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        is_whole = bool(self.pieces) and self.pieces[-1].finish_reason is not None
        return is_whole or self.is_cancelled or self.error is not None

    @contextmanager
    def fails_alone(self) -> Iterator[None]:
        """An error in this block ends this text alone."""
        try:
            yield
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Ends this text with an error. The log alone has its traceback."""
        _log.error("a text failed: %s", error, exc_info=None if isinstance(error, PellucidError) else error)
        self.error = without_frames(error)


class ContinuousBatch:
    """The texts that one model writes at present, and those that wait for a slot. One thread at a time may call it.

    The model is put into eval mode. A text longer than the context goes on as `decoding.SlidingWindow` says.
    """

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, n_slots: int = N_SLOTS) -> None:
        model.eval()
        self._tokenizer, self._max_positions, self._vocab_size = tokenizer, model.max_positions, model.vocab_size
        self._slots = make_slots(model, n_slots)
        self._device = next(model.parameters()).device
        self._forbidden = torch.tensor(never_written(tokenizer), dtype=torch.long, device=self._device)
        self._free = list(range(n_slots))
        self._rows: list[_Row] = []
        self._waiting: deque[Writing] = deque()

    def add(self, writing: Writing) -> None:
        """Puts a text at the end of those that wait. Its pieces come with the steps that follow."""
        assert writing.request.prompt_ids, "a document begins after an end_of_text"
        self._waiting.append(writing)

    @torch.inference_mode()
    def step(self) -> list[Writing]:
        """One token more for each text that has read its prompt; a piece of it for those that have not.

        Returns the texts that went on: most have a new piece.
        """
        self._let_go(row for row in self._rows if row.writing.is_cancelled)
        self._admit()
        self._read()
        self._let_go(row for row in self._rows if row.writing.error)
        ended = [row for row in self._rows if row.has_read and row.writing.n_new == row.writing.request.max_new_tokens]
        for row in ended:  # of no new token at all
            row.end("length")
        self._let_go(ended)
        return [row.writing for row in [*ended, *self._write()]]

    def _admit(self) -> None:
        """The first that wait get the free slots, the lowest first: a step computes attention up to the last in use."""
        while self._free and self._waiting:
            writing = self._waiting.popleft()
            if not writing.is_cancelled:
                slot = min(self._free)
                self._free.remove(slot)
                self._slots.empty(slot)
                row = None
                with writing.fails_alone():
                    row = _Row(writing, slot, self._tokenizer, self._max_positions, self._vocab_size)
                self._rows.append(row) if row else self._free.append(slot)

    def _read(self) -> None:
        """Prompts, all but their last tokens: fewer than twice TOKENS_READ_AT_ONCE in all, so that nobody waits long.

        Where a prompt is cut depends on itself alone.
        """
        n_read = 0
        for row in self._rows:
            if not row.has_read and n_read < TOKENS_READ_AT_ONCE:
                ids = row.unread[:-1][:TOKENS_READ_AT_ONCE]
                del row.unread[: len(ids)]
                n_read += len(ids)
                with row.writing.fails_alone():
                    if row.scores_prompt:
                        row.add_prompt_tokens(ids, self._slots.score(row.slot, ids))
                    else:
                        self._slots.read(row.slot, ids)

    def _write(self) -> list[_Row]:
        """The next token of each row that has read all but one of its tokens."""
        rows = [row for row in self._rows if row.has_read and not row.writing.has_ended]
        if not rows:
            return []
        logits_WV = self._slots.step({row.slot: row.unread[0] for row in rows}).float()
        logits_RV = logits_WV[[row.slot for row in rows]]
        token_ids = self._choose(rows, logits_RV)
        scored = [i for i, row in enumerate(rows) if row.writing.request.n_likeliest is not None]
        scores = dict(zip(scored, logits_RV[scored].log_softmax(dim=-1), strict=True)) if scored else {}
        for i, (row, token_id) in enumerate(zip(rows, token_ids, strict=True)):
            if row.writing.error:
                continue
            row.add(token_id, scores.get(i))
            if self._slots.length(row.slot) == self._max_positions:
                self._slots.empty(row.slot)
                row.unread = row.latest(max(1, self._max_positions // 2))
        self._let_go(row for row in rows if row.writing.has_ended)
        return rows

    def _choose(self, rows: list[_Row], logits_RV: Tensor) -> list[int]:
        """A token for each row, by its own settings and numbers; rows with equal settings together.

        A row whose logits are no distribution fails alone, and gets token 0.
        """
        if len(self._forbidden):
            logits_RV = logits_RV.index_fill(-1, self._forbidden, -torch.inf)
        groups: dict[Sampling, list[int]] = {}
        for i, (row, is_drawn) in enumerate(zip(rows, are_distributions(logits_RV), strict=True)):
            if is_drawn:
                groups.setdefault(row.writing.request.sampling, []).append(i)
            else:
                row.writing.fail(no_distribution())
        token_ids = [0] * len(rows)
        for sampling, members in groups.items():
            uniforms_B1 = torch.tensor([[rows[i].uniform()] for i in members], device=self._device)
            seen_BV = None
            if sampling.repetition_penalty != 1:
                seen_BV = torch.stack([rows[i].seen_V for i in members]).to(self._device)
            logits_BV = logits_RV if len(members) == len(rows) else logits_RV[members]
            drawn = next_token(logits_BV, sampling, uniforms_B1, seen_BV).tolist()
            for i, token_id in zip(members, drawn, strict=True):
                token_ids[i] = token_id
        return token_ids

    def _let_go(self, rows: Iterable[_Row]) -> None:
        gone = set(rows)
        self._free += [row.slot for row in gone]
        if gone:
            self._rows = [row for row in self._rows if row not in gone]


class _Row:
    """A text in its slot."""

    def __init__(self, writing: Writing, slot: int, tokenizer: Tokenizer, max_positions: int, vocab_size: int) -> None:
        request = writing.request
        self.writing, self.slot = writing, slot
        self._tokenizer, self._stop = tokenizer, request.stop
        self._ids = list(request.prompt_ids)
        self.unread = self._ids[-max_positions:]
        self.scores_prompt = request.scores_prompt
        seed = None if request.seed is None else list(request.seed)
        self._random = np.random.Generator(np.random.Philox(seed))
        self.counts_repetition = request.sampling.repetition_penalty != 1
        if self.counts_repetition:
            self.seen_V = torch.zeros(vocab_size, dtype=torch.bool)
            self.seen_V[[id_ for id_ in self._ids if id_ not in tokenizer.stop_ids]] = True
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text, self._n_given = "", 0  # characters written, and how many of them are in pieces already
        self._held: list[Token] = []  # tokens whose text is in no piece yet

    @property
    def has_read(self) -> bool:
        """Its last token goes through the model together with those of the others."""
        return len(self.unread) == 1

    def uniform(self) -> float:
        """The next of its own numbers in [0, 1)."""
        return float(self._random.random(dtype=np.float32))

    def latest(self, n_tokens: int) -> list[int]:
        return self._ids[-n_tokens:]

    def add_prompt_tokens(self, ids: Sequence[int], logits_TV: Tensor) -> None:
        """The scores of the tokens after these."""
        after = [*ids[1:], self.unread[0]]
        scores_TV = logits_TV.float().log_softmax(dim=-1)
        self.writing.prompt_tokens += [
            self._scored(id_, 0, scores_V) for id_, scores_V in zip(after, scores_TV, strict=True)
        ]

    def add(self, token_id: int, scores_V: Tensor | None) -> None:
        """The next token, and the text of it that can be told."""
        self.writing.n_new += 1
        self.scores_prompt = False  # what is read from now on, when the window slides, has been scored
        self.unread = [token_id]
        self._ids.append(token_id)
        if self.counts_repetition:
            self.seen_V[token_id] = True
        if token_id in self._tokenizer.stop_ids:
            self.end("end_of_text")
            return
        self._held.append(self._scored(token_id, len(self._text), scores_V))
        self._text += self._decoder.decode(self._tokenizer.token_bytes(token_id))
        start = first_stop(self._text, self._stop) if self._stop else None
        if start is not None:
            self._held = [token for token in self._held if token.offset < start]
            self._give(start, "stop")
        elif self.writing.n_new == self.writing.request.max_new_tokens:
            self.end("length")
        else:
            self._give(length_before_a_beginning(self._text, self._stop) if self._stop else len(self._text))

    def end(self, reason: FinishReason) -> None:
        """Nothing more will come: all that was held back is told."""
        self._text += self._decoder.decode(b"", final=True)
        self._give(len(self._text), reason)

    def _give(self, length: int, reason: FinishReason | None = None) -> None:
        """A piece: the text up to here, and the tokens that it begins with."""
        n_tokens = len(self._held) if reason else sum(token.offset < length for token in self._held)
        tokens, self._held = self._held[:n_tokens], self._held[n_tokens:]
        if reason or length > self._n_given or tokens:
            self.writing.pieces.append(Piece(self._text[self._n_given : length], tokens, reason))
        self._n_given = length

    def _scored(self, token_id: int, offset: int, scores_V: Tensor | None) -> Token:
        n = self.writing.request.n_likeliest
        if scores_V is None or n is None:
            return Token(token_id, offset)
        best = scores_V.topk(min(n, len(scores_V)))
        likeliest = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        return Token(token_id, offset, scores_V[token_id].item(), likeliest)

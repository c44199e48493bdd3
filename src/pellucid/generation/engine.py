"""The decoding loop: texts that one model writes at the same time, each with its own settings. It knows token ids only.

    waiting    r  s
    slot 0     a a a a a a .            a text ends; at the next step its slot is another's
    slot 1     p p b b b b b b b        reads its prompt in pieces, between the steps of the others, then writes
    slot 2     . c c c c . d d d        one token per step
               ───────────────► steps

What has been read is held in one of two forms. In `slots.py` texts join and leave at any step, as in the picture: to
wait until a whole batch has ended would leave most slots idle most of the time (Yu et al. 2022, "Orca"). In
`in_step.py` all begin together, which is the fastest way to write many. A text with a seed is the same alone and in a
crowd, up to rounding: each draws its own random numbers.

Shapes: R texts that write, V vocabulary, S slots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.generation.in_step import TOKENS_READ_AT_ONCE, InStep
from pellucid.generation.sampling import Sampling, apply_temperature, are_distributions, next_token, no_distribution
from pellucid.generation.writing import Writing
from pellucid.model.language_model import LanguageModel, eval_mode

if TYPE_CHECKING:
    from pellucid.generation.penalties import Past
    from pellucid.generation.slots import SlotsOfAnyModel, SlotsOfDecoder


class Engine:
    """The texts that one model writes at present, and those that wait for a slot. One thread at a time may call it.

    `stop_ids` end a text, `forbidden_ids` are never drawn. A repetition penalty counts the whole prompt, but no
    `stop_ids`: the one before a document is no reason not to end. The other penalties count what is written. A text
    longer than the context goes on as `in_step.latest` says. The model must be in eval mode.
    """

    def __init__(
        self,
        model: LanguageModel,
        memory: InStep | SlotsOfDecoder | SlotsOfAnyModel,
        *,
        stop_ids: Sequence[int],
        forbidden_ids: Sequence[int] = (),
    ) -> None:
        self._memory, self._stop_ids, self._environment = memory, frozenset(stop_ids), model.environment
        self._max_positions, self._vocab_size = model.max_positions, model.vocab_size
        self._device, self._free = next(model.parameters()).device, list(range(memory.n_slots))  # a heap
        self._forbidden_ids = torch.tensor(forbidden_ids, dtype=torch.long, device=self._device)
        self._rows: list[Writing] = []
        self._waiting: deque[Writing] = deque()
        self._is_reading = False  # whether some row has more to read than its latest token
        self._past: Past | None = None  # which tokens have occurred, if a penalty asks

    @property
    def is_idle(self) -> bool:
        return not self._waiting and all(row.has_ended for row in self._rows)

    def add(self, writing: Writing) -> None:
        """Puts a text at the end of those that wait. Its tokens come with the steps that follow."""
        assert writing.prompt_ids, "a document begins after an end_of_text"
        writing.constraint = writing.constraint or (self._environment and self._environment(writing.prompt_ids))
        self._waiting.append(writing)

    @torch.inference_mode()
    def step(self) -> list[Writing]:
        """One token more for each text that has read its prompt; a piece of it for those that have not.

        Returns the texts that went on: most have a new token.
        """
        self._drop_ended()
        if self._waiting and self._free:
            self._admit()
        if isinstance(self._memory, InStep):
            return self._write(self._rows)
        ended = self._read(self._memory) if self._is_reading else []
        return [*ended, *self._write([row for row in self._rows if len(row.unread) == 1])]

    def _drop_ended(self) -> None:
        going_on = [row for row in self._rows if not row.has_ended]
        if len(going_on) < len(self._rows):
            for row in set(self._rows).difference(going_on):
                heappush(self._free, row.slot)
            self._rows = going_on

    def _admit(self) -> None:
        """The first that wait get the free slots, the lowest first: a step computes attention up to the last in use."""
        while self._free and self._waiting:
            row = self._waiting.popleft()
            with row.fails_alone():
                row.begin(self._free[0], self._max_positions)
                self._memory.empty(row.slot)
                if row.sampling.looks_back:
                    from pellucid.generation.penalties import Past  # few texts ask for it

                    self._past = self._past or Past(self._memory.n_slots, self._vocab_size, self._device)
                    self._past.begin(row.slot, [id_ for id_ in row.prompt_ids if id_ not in self._stop_ids])
            if not row.has_ended:
                heappop(self._free)
                self._rows.append(row)
        self._rows.sort(key=lambda row: row.slot)
        self._is_reading = True

    def _read(self, slots: SlotsOfDecoder | SlotsOfAnyModel) -> list[Writing]:
        """Prompts, all but their last tokens: fewer than twice TOKENS_READ_AT_ONCE in all, so that nobody waits long.

        Where a prompt is cut depends on itself alone. Returns the texts that end here, of no new token at all.
        """
        n_read = 0
        for row in self._rows:
            ids = row.unread[:-1][:TOKENS_READ_AT_ONCE]
            if not ids or n_read >= TOKENS_READ_AT_ONCE:
                continue
            del row.unread[: len(ids)]
            n_read += len(ids)
            with row.fails_alone():
                if row.scores_prompt and not row.token_ids:
                    row.add_prompt_tokens(ids, slots.score(row.slot, ids))
                else:
                    slots.read(row.slot, ids)
        self._drop_ended()
        ended = [row for row in self._rows if not row.max_new_tokens and len(row.unread) == 1]
        for row in ended:
            row.end("length")
        self._drop_ended()
        self._is_reading = any(len(row.unread) > 1 for row in self._rows)
        return ended

    def _write(self, rows: list[Writing]) -> list[Writing]:
        """Feeds these rows a token each, and adds the next one to those that have read all of their tokens."""
        if not rows:
            return []
        if isinstance(self._memory, InStep) and not self._memory.length(0):
            logits_RV = self._memory.begin({row.slot: row.unread for row in rows}).float()
        else:
            logits_RV = self._memory.step({row.slot: row.unread.pop(0) for row in rows}).float()
        have_read = [i for i, row in enumerate(rows) if not row.unread]
        if len(have_read) < len(rows):
            logits_RV, rows = logits_RV[have_read], [rows[i] for i in have_read]
        if not rows:
            return []
        scored = [i for i, row in enumerate(rows) if row.n_likeliest is not None]
        scores = dict(zip(scored, logits_RV[scored].log_softmax(dim=-1), strict=True)) if scored else {}
        for i, (row, token_id) in enumerate(zip(rows, self._choose(rows, logits_RV), strict=True)):
            if row.error is None:
                row.add(token_id, token_id in self._stop_ids or token_id in row.stop_ids, scores.get(i))
        self._begin_anew(rows)
        return rows

    def _begin_anew(self, rows: list[Writing]) -> None:
        """Where the context is full, its last half is to be read again; where a text was dropped, its prompt."""
        some = rows[:1] if isinstance(self._memory, InStep) else rows  # in step all are full at the same time
        if any(self._memory.length(row.slot) == self._max_positions or not row.token_ids for row in some):
            for row in [
                row for row in rows if self._memory.length(row.slot) == self._max_positions or not row.token_ids
            ]:
                self._memory.empty(row.slot)
                row.unread = row.latest(self._max_positions)
                self._is_reading = True

    def _choose(self, rows: list[Writing], logits_RV: Tensor) -> list[int]:
        """A token for each row, by its own settings and numbers; rows with equal settings together.

        A row whose logits are no distribution fails alone, and gets token 0.
        """
        if len(self._forbidden_ids):
            logits_RV.index_fill_(-1, self._forbidden_ids, -torch.inf)
        for i in [i for i, row in enumerate(rows) if len(row.token_ids) < row.min_new_tokens]:
            logits_RV[i, [*self._stop_ids, *rows[i].stop_ids]] = -torch.inf
        for row, logits_V in [(row, logits_RV[i]) for i, row in enumerate(rows) if row.constraint]:
            with row.fails_alone():
                logits_V.copy_(row.constraint.constrain(logits_V))  # type: ignore[union-attr]
        can_be_drawn = are_distributions(logits_RV)
        if all(can_be_drawn) and all(row.sampling is rows[0].sampling for row in rows):
            return self._choose_together(rows, logits_RV)
        groups: dict[Sampling, list[int]] = {}
        for i, (row, can) in enumerate(zip(rows, can_be_drawn, strict=True)):
            if can:
                groups.setdefault(row.sampling, []).append(i)
            else:
                row.fail(no_distribution())
        token_ids = [0] * len(rows)
        for members in groups.values():
            drawn = self._choose_together([rows[i] for i in members], logits_RV[members])
            for i, token_id in zip(members, drawn, strict=True):
                token_ids[i] = token_id
        return token_ids

    def _choose_together(self, rows: list[Writing], logits_RV: Tensor) -> list[int]:
        sampling = rows[0].sampling
        uniforms_R1 = torch.from_numpy(np.array([[row.uniform()] for row in rows], np.float32)).to(self._device)
        slots, past = [row.slot for row in rows], self._past if sampling.looks_back else None
        drawn_R = next_token(logits_RV, sampling, uniforms_R1, past.of(slots) if past else None)
        if past:
            past.add(slots, drawn_R)
        if any(row.keeps_log_p for row in rows):
            log_p_RV = apply_temperature(logits_RV, sampling.temperature).log_softmax(dim=-1)
            for row, log_p in zip(rows, log_p_RV.gather(-1, drawn_R[:, None])[:, 0].tolist(), strict=True):
                row.log_p.append(log_p)
        token_ids: list[int] = drawn_R.tolist()
        return token_ids


def in_step(
    model: LanguageModel,
    writings: Sequence[Writing],
    *,
    stop_ids: Sequence[int],
    forbidden_ids: Sequence[int] = (),
) -> Iterator[None]:
    """Writes these texts together, all to their ends: each step gives all that have read their prompts a token.

    Raises the error that a text meets, NonFiniteError for logits that are no distribution.
    """
    capacity = max(len(writing.prompt_ids[-model.max_positions :]) + writing.max_new_tokens for writing in writings)
    with eval_mode(model):
        memory = InStep(model, len(writings), capacity)
        engine = Engine(model, memory, stop_ids=stop_ids, forbidden_ids=forbidden_ids)
        for writing in writings:
            engine.add(writing) if writing.max_new_tokens else writing.end("length")
        while not engine.is_idle:
            engine.step()
            for writing in writings:
                if writing.error is not None:
                    raise writing.error
            yield

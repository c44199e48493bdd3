"""Rows that begin together and go on in step: one state for all of them, of any kind of model.

Their texts differ in length, and yet nothing is padded and nothing masked: all begin at position 0. What all have of
their texts is read in one pass, and what several begin with only once. After that each step feeds one token to each
row: the next of its prompt while it still reads, else the one that it drew.

    row 0     P P P P p w w w .         P: read together, at the start
    row 1     P P P P w w w w w w       p: the rest of a prompt, one token per step
    row 2     P P P P p p p w w .       w: written; a row that ends is dropped with a few others
              ───────────────► steps

Shapes: N rows, U rows that differ, T positions that all have, V vocabulary, X hidden vectors or logits.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from pellucid.generation.single_token import reader_of_one_token, reader_of_prompts
from pellucid.kernels.products import FasterProducts
from pellucid.model.language_model import LanguageModel, State, product_dtype

TOKENS_READ_AT_ONCE = 128  # at least, of each row: the vectors of so many are in memory at the same time
SCORES_READ_AT_ONCE = 2**22  # of each head, if that is more: 16 MB
LONG_PROMPT, TOKENS_MEASURED = 256, 64  # to measure products takes as long as to read six times as many tokens, once
LIVE_SHARE = 0.9  # when fewer of the rows still go on, the others are dropped: that copies the state


class InStep:
    """The state of rows that go on in step, each known by its slot. `capacity`: of the longest text, in positions.

    The model must be in eval mode.
    """

    def __init__(self, model: LanguageModel, n_slots: int, capacity: int) -> None:
        self.n_slots, self._model, self._capacity = n_slots, model, min(capacity, model.max_positions)
        self._device = next(model.parameters()).device
        self._read_one = reader_of_one_token(model)
        self._read, self._logits = reader_of_prompts(model, self._read_one)
        self._state: State | None = None
        self._row_of: dict[int, int] = {}  # each slot's in the state

    def empty(self, slot: int) -> None:
        """Forget all that was read: no row can begin again without the others."""
        self._state = None

    def length(self, slot: int) -> int:
        """How many tokens it has read: as many as the others."""
        return 0 if self._state is None else self._state.length

    def begin(self, unread_of: Mapping[int, list[int]]) -> Tensor:
        """Reads as many tokens as all of these rows have, and takes them out of their lists; logits (N, V) after it."""
        n_read = min(map(len, unread_of.values()))
        beginnings = [tuple(unread[:n_read]) for unread in unread_of.values()]
        different = {beginning: row for row, beginning in enumerate(dict.fromkeys(beginnings))}
        self._row_of = {slot: row for row, slot in enumerate(unread_of)}
        self._state = self._model.new_state(len(different), self._capacity)
        tokens_UT = self._tensor(list(different))
        with FasterProducts() if self._gains_from_measuring(tokens_UT) else nullcontext():
            for piece_UT in torch.split(tokens_UT, lengths_of_pieces(*tokens_UT.shape), dim=1):
                read_UTX = self._read(piece_UT, self._state)
        logits_NV = self._logits(read_UTX[:, -1:])[:, 0]
        if len(different) < len(beginnings):
            rows_N = self._tensor([different[beginning] for beginning in beginnings])
            self._state.reorder(rows_N)
            logits_NV = logits_NV[rows_N]
        for unread in unread_of.values():
            del unread[:n_read]
        return logits_NV

    def step(self, token_of: Mapping[int, int]) -> Tensor:
        """One more token for each of these slots, some or all of those before: logits (N, V), row by row."""
        assert self._state is not None
        if len(token_of) <= LIVE_SHARE * len(self._row_of):
            self.reorder(list(token_of), list(token_of))
        if list(token_of) == list(self._row_of):
            return self._read_one(self._tensor(list(token_of.values())), self._state)
        logits_NV = self._read_one(self._tensor([token_of.get(slot, 0) for slot in self._row_of]), self._state)
        return logits_NV[[self._row_of[slot] for slot in token_of]]

    def reorder(self, slots: Sequence[int], names: Sequence[int]) -> None:
        """Go on with these slots, under these names, in this order; one may be named several times."""
        assert self._state is not None
        self._state.reorder(self._tensor([self._row_of[slot] for slot in slots]))
        self._row_of = {name: row for row, name in enumerate(names)}

    def _gains_from_measuring(self, tokens_UT: Tensor) -> bool:
        """Whether all is float32: under autocast the faster float32 product would still be the slower one."""
        dtype = product_dtype(next(self._model.parameters()))
        return dtype == torch.float32 and tokens_UT.size(1) >= LONG_PROMPT

    def _tensor(self, ids: Sequence[object]) -> Tensor:
        return torch.from_numpy(np.array(ids)).to(self._device)  # ten times as fast as torch.tensor


def lengths_of_pieces(U: int, T: int) -> list[int]:
    """A long prompt begins with a short piece, on which products are measured; the others are as long as memory allows.

    Explicit attention keeps a few copies of its scores, U * T for each token of a piece and each head.
    """
    first, most = TOKENS_MEASURED * (T >= LONG_PROMPT), max(TOKENS_READ_AT_ONCE, SCORES_READ_AT_ONCE // (U * T))
    return [length for length in (first, *[most] * ((T - first) // most), (T - first) % most) if length]


def latest(token_ids: list[int], max_positions: int) -> list[int]:
    """Tokens to read anew when the state is full: the last half of the context.

    So it always sees at least half a context, and reads each token at most twice. To forget one token at a time, it
    would have to read the whole context each time.
    """
    return token_ids[-max(1, max_positions // 2) :]

"""Where several texts are written at once, each at its own position: slots, numbered 0 … N-1, one text in each.

A step feeds one token to each slot that writes. All rows go through each matrix together, which costs little more than
one alone: the matrix is read from memory once. In attention each row sees the keys of its own slot, as many as its text
has, so texts of any lengths go on side by side.

What is computed for a slot does not depend on the others: a matrix always gets N rows, used or not (with another number
a kernel may add in another order), and attention treats each row by itself. With one thread on a CPU not even the last
bit does; several threads share out attention by the number of its rows, which may change how it rounds.

Shapes: N slots, W rows up to the last slot that writes, R rows that write, S key positions, D model, H query heads,
G key/value heads, M heads of all three kinds, K head width, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.generation.single_token import SingleTokenDecoder, reader_of_one_token, reader_of_prompts
from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import AttendOnOneToken, KVCache, LayerCache, rotated
from pellucid.model.language_model import LanguageModel, State
from pellucid.model.one_token import has_lean_form
from pellucid.model.positions import AtPosition

KEYS_AT_ONCE = 64  # keys are looked at in multiples of it, so that every row meets full vectors: see the tests


def can_run_side_by_side(decoder: Decoder) -> bool:
    """Whether every layer has a lean form and keeps keys by their positions, so that each row can be at its own.

    A window and a linear attention keep a state with one position for all rows.
    """
    keeps_positions = all(type(layer) is LayerCache for layer in decoder.new_state(1, 1).layers)
    return keeps_positions and all(map(is_lean, decoder.blocks))


def is_lean(block: nn.Module) -> bool:
    residuals = (block.attention, block.feed_forward)
    return all(map(has_lean_form, (block, *residuals, *(residual.sublayer for residual in residuals))))  # type: ignore[union-attr]


class SlotsOfDecoder:
    """One key/value cache for all slots. A slot reads its prompt by the ordinary forward pass, in its part of it."""

    def __init__(self, lean: SingleTokenDecoder, n_slots: int) -> None:
        self.n_slots = n_slots
        self._decoder, self._lean = lean.decoder, lean
        self._layers: Sequence[LayerCache] = lean.decoder.new_state(n_slots).layers  # type: ignore[assignment]
        self._slots = [
            KVCache([LayerCache(layer.keys_BGSK[i : i + 1], layer.values_BGSK[i : i + 1]) for layer in self._layers])
            for i in range(n_slots)
        ]

    def empty(self, slot: int) -> None:
        """Forget what the slot has read."""
        self._set_length(slot, 0)

    def length(self, slot: int) -> int:
        """How many tokens it has read."""
        return self._slots[slot].length

    def read(self, slot: int, token_ids: Sequence[int]) -> None:
        """Reads these tokens after those that the slot has read."""
        self._decoder.hidden(self._tensor(token_ids)[None], self._slots[slot])

    def score(self, slot: int, token_ids: Sequence[int]) -> Tensor:
        """Reads these tokens, and returns the logits (T, V) after each."""
        logits_1TV: Tensor = self._decoder(self._tensor(token_ids)[None], self._slots[slot])
        return logits_1TV[0]

    def step(self, token_of: Mapping[int, int]) -> Tensor:
        """One more token for each of these slots: their logits (R, V), in the same order."""
        n_rows = max(token_of) + 1
        # A slot that does not write gets any token, at the position that its next one will overwrite.
        last = self._decoder.context_length - 1
        positions_N = self._tensor([min(self.length(slot), last) for slot in range(self.n_slots)])
        longest = max(self.length(slot) for slot in token_of) + 1
        rows = Rows(positions_N, n_rows, min(-(-longest // KEYS_AT_ONCE) * KEYS_AT_ONCE, last + 1))
        tokens_N = self._tensor([token_of.get(slot, 0) for slot in range(self.n_slots)])
        logits_NV = self._lean.logits(tokens_N, positions_N, [LayerRows(layer, rows) for layer in self._layers])  # type: ignore[misc]
        for slot in token_of:
            self._set_length(slot, self.length(slot) + 1)
        slots = list(token_of)
        return logits_NV[:n_rows] if slots == list(range(n_rows)) else logits_NV[slots]

    def _set_length(self, slot: int, length: int) -> None:
        for layer in self._slots[slot].layers:
            layer.length = length  # type: ignore[misc]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.array(numbers)).to(self._layers[0].keys_BGSK.device)


class Rows:
    """The position of each row in a step, and the keys that it sees: the same for all layers."""

    def __init__(self, positions_N: Tensor, n_rows: int, n_keys: int) -> None:
        self.n_rows, self.n_keys = n_rows, n_keys
        self.rows_W, self.positions_W = torch.arange(n_rows, device=positions_N.device), positions_N[:n_rows]
        self.positions_W11 = self.positions_W[:, None, None]
        keys_S = torch.arange(n_keys, device=positions_N.device)
        self.is_seen_W11S = (keys_S <= self.positions_W[:, None])[:, None, None]


class LayerRows(NamedTuple):
    """The rows of a step, with the cache of one layer."""

    cache: LayerCache
    rows: Rows

    def attend(
        self, heads_NM1K: Tensor, n_heads_each: Sequence[int], rotate: AtPosition, attend: AttendOnOneToken
    ) -> Tensor:
        """`LayerCache.attend`, where each row's query meets the keys of its own slot. Rows without a text get zeros."""
        (keys_NGSK, values_NGSK), rows = (self.cache.keys_BGSK, self.cache.values_BGSK), self.rows
        W, S = rows.n_rows, rows.n_keys
        q_WH1K, k_WG1K, v_WG1K = rotated(heads_NM1K[:W], n_heads_each, rotate, rows.positions_W11)
        # On a GPU a LayerNorm of queries and keys under autocast makes all three float32.
        keys_NGSK[rows.rows_W, :, rows.positions_W] = k_WG1K[:, :, 0].to(keys_NGSK.dtype)
        values_NGSK[rows.rows_W, :, rows.positions_W] = v_WG1K[:, :, 0].to(values_NGSK.dtype)
        keys_WGSK, values_WGSK = keys_NGSK[:W, :, :S], values_NGSK[:W, :, :S]
        heads_WH1K = attend(q_WH1K, keys_WGSK, values_WGSK, rows.is_seen_W11S)
        heads_NH1K = heads_WH1K.new_zeros(len(heads_NM1K), *heads_WH1K.shape[1:])
        heads_NH1K[:W] = heads_WH1K
        return heads_NH1K


class SlotsOfAnyModel:
    """Each slot with a state of its own, one after the other: for models that keep one position for all rows."""

    def __init__(self, model: LanguageModel, read_one: Callable[[Tensor, State], Tensor], n_slots: int) -> None:
        self.n_slots = n_slots
        self._model, self._read_one = model, read_one
        self._read, _ = reader_of_prompts(model, read_one)
        self._device = next(model.parameters()).device
        self._states: list[State] = [model.new_state(1, 1)] * n_slots

    def empty(self, slot: int) -> None:
        self._states[slot] = self._model.new_state(1)

    def length(self, slot: int) -> int:
        return self._states[slot].length

    def read(self, slot: int, token_ids: Sequence[int]) -> None:
        self._read(torch.tensor([token_ids], device=self._device), self._states[slot])

    def score(self, slot: int, token_ids: Sequence[int]) -> Tensor:
        logits_1TV: Tensor = self._model(torch.tensor([token_ids], device=self._device), self._states[slot])
        return logits_1TV[0]

    def step(self, token_of: Mapping[int, int]) -> Tensor:
        logits_R1V = [
            self._read_one(torch.tensor([token_id], device=self._device), self._states[slot])
            for slot, token_id in token_of.items()
        ]
        return torch.cat(logits_R1V)


def make_slots(model: LanguageModel, n_slots: int) -> SlotsOfDecoder | SlotsOfAnyModel:
    """Side by side where the model can, else one after the other. The model must be in eval mode."""
    read_one = reader_of_one_token(model)
    if isinstance(read_one, SingleTokenDecoder) and can_run_side_by_side(read_one.decoder):
        return SlotsOfDecoder(read_one, n_slots)
    return SlotsOfAnyModel(model, read_one, n_slots)

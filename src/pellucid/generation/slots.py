"""Where several texts are written at once, each at its own position: slots, numbered 0 … N-1, one text in each.

A step feeds one token to each slot that writes. All rows go through each matrix together, which costs little more than
one alone: the matrix is read from memory once. In attention each row sees the keys of its own slot, as many as its text
has, so texts of any lengths go on side by side.

What is computed for a slot does not depend on the others: a matrix always gets N rows, some of them of no use (with
another number a kernel may add in another order), and attention treats each row by itself. With one thread on a CPU not
even the last bit does; several threads share out attention by the number of its rows, which may change how it rounds.

Shapes: N slots, W rows up to the last slot that writes, S key positions, D model, H query heads, G key/value heads,
K head width, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.generation.single_token import (
    SingleQueryAttention,
    SingleTokenDecoder,
    has_lean_form,
    is_plain,
    reader_of_one_token,
)
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder
from pellucid.model.feed_forward import FeedForward, SwiGLU
from pellucid.model.known_parts import unknown_parts
from pellucid.model.kv_cache import KVCache, LayerCache
from pellucid.model.language_model import LanguageModel, State
from pellucid.model.positions import Learned, Rotary, Sinusoidal, rotate_pairs

KEYS_AT_ONCE = 64  # keys are looked at in multiples of it, so that every row meets full vectors: see the tests


def can_run_side_by_side(decoder: Decoder) -> bool:
    """Whether every layer treats each row by itself, at the row's own position. Experts do not: a row's expert gets as
    many rows as happen to ask it. A window and a linear attention keep a state with one position for all rows.
    """
    return not unknown_parts(decoder) and all(keeps_rows_apart(block) for block in decoder.blocks)


def keeps_rows_apart(block: nn.Module) -> bool:
    residuals = [block.attention, block.feed_forward]
    attention, feed_forward = (residual.sublayer for residual in residuals)  # type: ignore[union-attr]
    return (
        type(attention) is MultiHeadAttention
        and has_lean_form(attention)
        and type(feed_forward) in (FeedForward, SwiGLU)
        and all(isinstance(part, nn.Module) and is_plain(part) for part in (block, *residuals, attention, feed_forward))
    )


class SlotsOfDecoder(SingleTokenDecoder):
    """One key/value cache for all slots. A slot reads its prompt by the ordinary forward pass, in its part of it."""

    def __init__(self, decoder: Decoder, n_slots: int) -> None:
        super().__init__(decoder, SlotAttention)
        self.n_slots = n_slots
        self._decoder = decoder
        self._layers: Sequence[LayerCache] = decoder.new_state(n_slots).layers  # type: ignore[assignment]
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
        """One more token for each of these slots: logits (W, V), whose row i is that of slot i."""
        n_rows = max(token_of) + 1
        # A slot that does not write gets any token, at the position that its next one will overwrite.
        last = self._decoder.context_length - 1
        rows = Rows(
            self._tensor([min(self.length(slot), last) for slot in range(self.n_slots)]),
            n_rows,
            longest=max(self.length(slot) for slot in token_of) + 1,
            decoder=self._decoder,
        )
        with self._kernels():
            x_ND = self._embed(self._tensor([token_of.get(slot, 0) for slot in range(self.n_slots)]))
            x_ND = rows.add_positions(x_ND).to(self._dtype)
            for block, layer in zip(self._blocks, self._layers, strict=True):
                x_ND = block(x_ND, LayerRows(layer, rows))
            logits_NV = self._soft_cap(self._unembed(self._final_norm(x_ND)))
        for slot in token_of:
            self._set_length(slot, self.length(slot) + 1)
        return logits_NV[:n_rows]

    def _set_length(self, slot: int, length: int) -> None:
        for layer in self._slots[slot].layers:
            layer.length = length  # type: ignore[misc]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._layers[0].keys_BGSK.device)


class Rows:
    """The position of each row in a step, and the keys that it sees: the same for all layers."""

    def __init__(self, positions_N: Tensor, n_rows: int, longest: int, decoder: Decoder) -> None:
        self.n_rows = n_rows
        self.positions_N = positions_N
        self.rows_W, self.positions_W = torch.arange(n_rows, device=positions_N.device), positions_N[:n_rows]
        self.n_keys = min(-(-longest // KEYS_AT_ONCE) * KEYS_AT_ONCE, decoder.context_length)
        keys_S = torch.arange(self.n_keys, device=positions_N.device)
        self.is_seen_W11S = (keys_S <= self.positions_W[:, None])[:, None, None]
        self.encoding = decoder.positions
        if isinstance(self.encoding, Rotary):
            self.cos_W11I = self.encoding.cos_TI[self.positions_W, None, None]
            self.sin_W11I = self.encoding.sin_TI[self.positions_W, None, None]

    def add_positions(self, x_ND: Tensor) -> Tensor:
        """`add_to_embeddings`, for a position per row."""
        match self.encoding:
            case Learned(positions_TD=table_TD) | Sinusoidal(table_TD=table_TD):
                return x_ND + table_TD[self.positions_N]
            case _:
                return x_ND

    def rotate(self, x_WH1K: Tensor) -> Tensor:
        """`Rotary.rotate`, for a position per row."""
        assert isinstance(self.encoding, Rotary)
        cos_W11I, sin_W11I = self.cos_W11I.to(x_WH1K.dtype), self.sin_W11I.to(x_WH1K.dtype)
        return rotate_pairs(x_WH1K, cos_W11I, sin_W11I)


class LayerRows(NamedTuple):
    """The rows of a step, with the cache of one layer."""

    cache: LayerCache
    rows: Rows


class SlotAttention(SingleQueryAttention):
    """Each row's query meets the keys of its own slot."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__(attention)
        self.is_rotated = isinstance(getattr(attention.rotate, "__self__", None), Rotary)

    def __call__(self, x_ND: Tensor, layer: LayerRows) -> Tensor:  # type: ignore[override]
        cache, rows = layer
        W, S = rows.n_rows, rows.n_keys
        heads_WH1K = self.project(x_ND)[:W].view(W, -1, 1, self.head_width)
        q_WH1K, k_WG1K, v_WG1K = torch.split_with_sizes(heads_WH1K, self.n_heads_each, 1)
        q_WH1K, k_WG1K = self.query_norm(q_WH1K), self.key_norm(k_WG1K)
        if self.is_rotated:
            q_WH1K, k_WG1K = rows.rotate(q_WH1K), rows.rotate(k_WG1K)
        k_WGK = k_WG1K[:, :, 0].to(cache.keys_BGSK.dtype)  # on a GPU a LayerNorm under autocast gives float32
        cache.keys_BGSK[rows.rows_W, :, rows.positions_W] = k_WGK
        cache.values_BGSK[rows.rows_W, :, rows.positions_W] = v_WG1K[:, :, 0]
        heads_WH1K = F.scaled_dot_product_attention(
            q_WH1K,
            cache.keys_BGSK[:W, :, :S],
            cache.values_BGSK[:W, :, :S],
            attn_mask=rows.is_seen_W11S,
            enable_gqa=self.shares_heads,
        )
        heads_ND = x_ND.new_zeros(x_ND.size(0), heads_WH1K.size(1) * self.head_width)
        heads_ND[:W] = heads_WH1K.reshape(W, -1)
        return self.W_O(heads_ND)


class SlotsOfAnyModel:
    """Each slot with a state of its own, one after the other: for models that keep one position for all rows."""

    def __init__(self, model: LanguageModel, n_slots: int) -> None:
        self.n_slots = n_slots
        self._model = model
        self._read_one = reader_of_one_token(model)
        self._device = next(model.parameters()).device
        self._states: list[State] = [model.new_state(1, 1)] * n_slots

    def empty(self, slot: int) -> None:
        self._states[slot] = self._model.new_state(1)

    def length(self, slot: int) -> int:
        return self._states[slot].length

    def read(self, slot: int, token_ids: Sequence[int]) -> None:
        self.score(slot, token_ids)

    def score(self, slot: int, token_ids: Sequence[int]) -> Tensor:
        logits_1TV: Tensor = self._model(torch.tensor([token_ids], device=self._device), self._states[slot])
        return logits_1TV[0]

    def step(self, token_of: Mapping[int, int]) -> Tensor:
        logits_WV = torch.zeros(max(token_of) + 1, self._model.vocab_size, device=self._device)
        for slot, token_id in token_of.items():
            logits_WV[slot] = self._read_one(torch.tensor([token_id], device=self._device), self._states[slot])[0]
        return logits_WV


def make_slots(model: LanguageModel, n_slots: int) -> SlotsOfDecoder | SlotsOfAnyModel:
    """Side by side where the model can, else one after the other. The model must be in eval mode."""
    if isinstance(model, Decoder) and can_run_side_by_side(model):
        return SlotsOfDecoder(model, n_slots)
    return SlotsOfAnyModel(model, n_slots)

"""Batches from token files: the order of the rows, and the inputs and targets of each.

Targets are the inputs shifted by one token. The order is a pure function of (seed, step), so all you need to resume
is the step.

Shapes: B rows of a batch, T positions: context_length, or as many as the longest row of the batch has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_never

from pellucid.data.packing import Integers, contiguous_rows, document_rows, packed_document_rows
from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError

IGNORE_INDEX = -100  # the target where there is nothing to predict; the default of torch's cross_entropy

Packing = Literal["contiguous", "documents"]

UPDATES_SORTED_TOGETHER = 16  # more would mean less padding; fewer, updates whose rows differ more in length


class Batch(NamedTuple):
    """Inputs and the token after each, int64; IGNORE_INDEX where there is nothing to predict."""

    inputs_BT: Tensor  # noqa: N815
    targets_BT: Tensor  # noqa: N815

    @property
    def n_losses(self) -> int:
        """The number of targets."""
        return int((self.targets_BT != IGNORE_INDEX).sum())

    @property
    def n_tokens(self) -> int:
        return self.inputs_BT.numel()

    def part(self, rows: slice) -> Batch:
        return Batch(self.inputs_BT[rows], self.targets_BT[rows])

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


def batch_of(token_file: TokenFile, places_BT: Integers) -> Batch:
    """The tokens at these places, and the one after each. Padding is end_of_text, with nothing to predict.

    Prompts of conversations and answers of tools have no targets either: they are not learned (equation P1).
    """
    is_padding_BT = places_BT < 0
    inputs_BT = token_file.tokens[places_BT].astype(np.int64)
    targets_BT = token_file.tokens[places_BT + 1].astype(np.int64)
    inputs_BT[is_padding_BT] = token_file.end_of_text
    targets_BT[is_padding_BT] = IGNORE_INDEX
    if token_file.is_target is not None:
        targets_BT[~token_file.is_target[places_BT + 1]] = IGNORE_INDEX
    return Batch(torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT))


class Batches:
    """Training batches: each epoch has every row once, in a new order.

    `batch(step)` is a pure function of the seed and the step. Steps are micro-batches, counted over the whole run.
    A batch at the end of an epoch takes its last rows from the next one.

    With packing `documents` the rows of an update (`batches_per_update` batches) are about equally long, and a batch
    is as wide as its longest row, unless `full_width`. Raises DataError for fewer tokens than one context.
    """

    def __init__(
        self,
        token_file: TokenFile,
        context_length: int,
        batch_size: int,
        *,
        seed: int,
        packing: Packing = "contiguous",
        batches_per_update: int = 1,
        full_width: bool = False,
    ) -> None:
        if token_file.n_targets < context_length:
            raise DataError(
                f"the {token_file.name} split",
                f"its {len(token_file.tokens)} tokens are fewer than one row: context_length {context_length} "
                "and the token after it",
                f"give more text, or set model.context_length to at most {token_file.n_targets}",
            )
        match packing:
            case "contiguous":
                self.rows, self.like_lengths, full_width = contiguous_rows(token_file, context_length), False, True
            case "documents":
                self.rows, self.like_lengths = packed_document_rows(token_file, context_length), True
            case _:
                assert_never(packing)
        self.lengths, self.full_width = self.rows.row_lengths(), full_width
        self.rows_per_update = batch_size * batches_per_update
        self.token_file, self.context_length, self.batch_size, self.seed = token_file, context_length, batch_size, seed
        # A batch needs the order of one epoch or, at its end, of two.
        self._row_order = lru_cache(maxsize=2)(self._draw_row_order)

    @property
    def steps_per_epoch(self) -> float:
        """The number of micro-batches that have every row once; rarely an integer."""
        return len(self.rows) / self.batch_size

    def batch(self, step: int) -> Batch:
        """Micro-batch `step`: (batch_size, at most context_length)."""
        return batch_of(self.token_file, self.places(step))

    def places(self, step: int) -> Integers:
        """The positions of the inputs of micro-batch `step` in the token file; -1 for padding."""
        first, n_rows = step * self.batch_size, len(self.rows)
        rows = np.array([self._row_order(i // n_rows)[i % n_rows] for i in range(first, first + self.batch_size)])
        return self.rows.places(rows, self.context_length if self.full_width else int(self.lengths[rows].max()))

    def _draw_row_order(self, epoch: int) -> Integers:
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = rng.permutation(len(self.rows))
        if self.like_lengths:
            n_to_fill = -epoch * len(order) % self.rows_per_update  # of the update that the previous epoch began
            n_updates = max(0, len(order) - n_to_fill) // self.rows_per_update
            full_updates = slice(n_to_fill, n_to_fill + n_updates * self.rows_per_update)
            order[full_updates] = like_lengths_together(order[full_updates], self.lengths, self.rows_per_update, rng)
        return order


def like_lengths_together(
    rows: Integers, lengths: Integers, rows_per_update: int, rng: np.random.Generator
) -> Integers:
    """The rows reordered so that those of an update are about equally long and need little padding.

    Only the rows of a few updates are sorted at a time, and then the updates are shuffled: so order and contents stay
    random. Sorted by update, not by batch, so that an update reads the same rows in one batch or in many.
    """
    window = np.arange(len(rows)) // (UPDATES_SORTED_TOGETHER * rows_per_update)
    by_length = rows[np.lexsort((lengths[rows], window))]
    return rng.permutation(by_length.reshape(-1, rows_per_update)).ravel()


def evaluation_batches(
    token_file: TokenFile,
    context_length: int,
    batch_size: int,
    *,
    from_document_starts: bool,
    max_tokens: int | None = None,
) -> Iterator[tuple[Batch, Integers]]:
    """Batches that have each token but the first as a target once, with the positions of their inputs in the file.

    from_document_starts: each document has its own row, so it is scored without any text before it; else the file is
    one stream, cut every `context_length` tokens. max_tokens: only about this many targets, in rows spread evenly.
    """
    rows = (document_rows if from_document_starts else contiguous_rows)(token_file, context_length)
    chosen = np.arange(len(rows))
    lengths = rows.row_lengths()
    if max_tokens is not None and max_tokens < token_file.n_targets:
        n_chosen = max(1, len(rows) * max_tokens // token_file.n_targets)
        chosen = np.arange(n_chosen) * len(rows) // n_chosen
    # Batches of rows of about equal length need little padding.
    chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
    for first in range(0, len(chosen), batch_size):
        rows_of_batch = chosen[first : first + batch_size]
        places_BT = rows.places(rows_of_batch, int(lengths[rows_of_batch].max()))
        yield batch_of(token_file, places_BT), places_BT

"""From token files to batches: which tokens stand in which row, and in which order rows come.

A row is a run of tokens, or several runs one after the other, followed by padding. Inputs and targets of a run are the
same tokens, shifted by one. The order is a pure function of (seed, step, rank): resuming needs no more than the step.

Shapes: B rows of a batch, T positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import assert_never

from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError

IGNORE_INDEX = -100  # the target where nothing is to be predicted; the default of torch's cross_entropy

Integers = NDArray[np.int64]
Packing = Literal["contiguous", "documents"]


class Batch(NamedTuple):
    """Inputs and what follows each of them, int64; IGNORE_INDEX where nothing is to be predicted."""

    inputs_BT: Tensor  # noqa: N815
    targets_BT: Tensor  # noqa: N815


@dataclass(frozen=True)
class Rows:
    """Which runs of the token file make up which row.

    Run r has the inputs tokens[starts[r] : starts[r] + lengths[r]]; row i has the runs from first_runs[i] up to, not
    including, first_runs[i + 1].
    """

    starts: Integers
    lengths: Integers
    first_runs: Integers

    def __len__(self) -> int:
        return len(self.first_runs) - 1

    @classmethod
    def one_run_each(cls, starts: Integers, lengths: Integers) -> Rows:
        return cls(starts, lengths, np.arange(len(starts) + 1))

    def row_lengths(self) -> Integers:
        """Inputs of each row, padding not counted."""
        return np.add.reduceat(self.lengths, self.first_runs[:-1])

    def places(self, rows: Integers, width: int) -> Integers:
        """Where the inputs of the given rows stand in the token file, (rows, width); -1 for padding."""
        places_BT = np.full((len(rows), width), -1, dtype=np.int64)
        for b, row in enumerate(rows):
            t = 0
            for run in range(self.first_runs[row], self.first_runs[row + 1]):
                start, length = self.starts[run], self.lengths[run]
                places_BT[b, t : t + length] = np.arange(start, start + length)
                t += length
        return places_BT


def batch_of(token_file: TokenFile, places_BT: Integers) -> Batch:
    """The tokens at these places, and after each the next one. Padding is end_of_text, with nothing to be predicted."""
    is_padding_BT = places_BT < 0
    inputs_BT = token_file.tokens[places_BT].astype(np.int64)
    targets_BT = token_file.tokens[places_BT + 1].astype(np.int64)
    inputs_BT[is_padding_BT] = token_file.end_of_text
    targets_BT[is_padding_BT] = IGNORE_INDEX
    return Batch(torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT))


def contiguous_rows(token_file: TokenFile, context_length: int) -> Rows:
    """The file as one stream, cut every `context_length` tokens: each token but the first is a target once."""
    starts = np.arange(0, token_file.n_targets, context_length)
    return Rows.one_run_each(starts, np.minimum(context_length, token_file.n_targets - starts))


def document_rows(token_file: TokenFile, context_length: int) -> Rows:
    """Each document in a row of its own, from its leading end_of_text on to the one that ends it.

    A document of more than `context_length` tokens goes on in further rows.
    """
    starts, lengths, _ = _document_runs(token_file, context_length)
    return Rows.one_run_each(starts, lengths)


def packed_document_rows(token_file: TokenFile, context_length: int) -> Rows:
    """Whole documents, packed into few rows: each row starts at a document, and no document is cut.

    Only a document of more than `context_length` tokens is cut; each of its further parts starts a row too.
    Best-fit decreasing: the longest document goes first, each into the fullest row that has room for it. Within a row,
    documents stand in the order of the file, so that long and short ones stand everywhere.
    """
    starts, lengths, goes_on = _document_runs(token_file, context_length)
    row_of = np.empty(len(starts), dtype=np.int64)
    row_of[goes_on] = np.arange(np.count_nonzero(goes_on))
    rows_with_room: list[list[int]] = [[] for _ in range(context_length + 1)]
    rooms = 0  # bit r is set if some row has room for r tokens: finding the least room is one shift

    def open_row(row: int, room: int) -> None:
        nonlocal rooms
        rows_with_room[room].append(row)
        rooms |= 1 << room

    for row, length in zip(row_of[goes_on].tolist(), lengths[goes_on].tolist(), strict=True):
        open_row(row, context_length - length)
    n_rows = int(np.count_nonzero(goes_on))
    documents = np.flatnonzero(~goes_on)
    for run in documents[np.argsort(-lengths[documents], kind="stable")].tolist():
        length = int(lengths[run])
        room, row = context_length, n_rows
        if fitting := rooms >> length:
            room = length + (fitting & -fitting).bit_length() - 1
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                rooms ^= 1 << room
        else:
            n_rows += 1
        row_of[run] = row
        open_row(row, room - length)
    order = np.lexsort((starts, ~goes_on, row_of))
    first_runs = np.searchsorted(row_of[order], np.arange(n_rows + 1))
    return Rows(starts[order], lengths[order], first_runs)


def _document_runs(token_file: TokenFile, context_length: int) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Documents cut to runs of at most `context_length`: starts, lengths, and whether a run goes on with a document."""
    boundaries = token_file.boundaries
    lengths = np.diff(boundaries)
    n_runs = -(-lengths // context_length)
    # 0, 1, 2, … within each document: the place in all runs minus the place of the document's first run.
    part = np.arange(n_runs.sum()) - np.repeat(np.cumsum(n_runs) - n_runs, n_runs)
    starts = np.repeat(boundaries[:-1], n_runs) + part * context_length
    return starts, np.minimum(context_length, np.repeat(boundaries[1:], n_runs) - starts), part > 0


class Batches:
    """Training batches: each epoch brings all rows, every one once, in a new order.

    `batch(step)` is a pure function of the seed, the step and the rank. Steps are micro-batches, counted over the
    whole run; a batch that reaches over the end of an epoch takes its other rows from the next one. Ranks take
    different rows.
    DataError: there are fewer tokens than one context.
    """

    def __init__(
        self,
        token_file: TokenFile,
        context_length: int,
        batch_size: int,
        *,
        seed: int,
        packing: Packing = "contiguous",
        rank: int = 0,
        n_ranks: int = 1,
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
                self.rows = contiguous_rows(token_file, context_length)
            case "documents":
                self.rows = packed_document_rows(token_file, context_length)
            case _:
                assert_never(packing)
        self.token_file, self.context_length, self.batch_size = token_file, context_length, batch_size
        self.seed, self.rank, self.n_ranks = seed, rank, n_ranks
        # A batch needs the order of one epoch or, over its end, of two.
        self._row_order = lru_cache(maxsize=2)(self._draw_row_order)

    @property
    def steps_per_epoch(self) -> float:
        """Micro-batches, of all ranks at once, in which every row comes once; seldom a whole number."""
        return len(self.rows) / (self.batch_size * self.n_ranks)

    def batch(self, step: int) -> Batch:
        """Micro-batch `step` of this rank: (batch_size, context_length)."""
        first = (step * self.n_ranks + self.rank) * self.batch_size
        places = (divmod(i, len(self.rows)) for i in range(first, first + self.batch_size))
        rows = np.array([self._row_order(epoch)[i] for epoch, i in places])
        return batch_of(self.token_file, self.rows.places(rows, self.context_length))

    def _draw_row_order(self, epoch: int) -> Integers:
        return np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(len(self.rows))


def evaluation_batches(
    token_file: TokenFile,
    context_length: int,
    batch_size: int,
    *,
    from_document_starts: bool,
    max_tokens: int | None = None,
) -> Iterator[tuple[Batch, Integers]]:
    """The file once through: each token but the first is a target once. With each batch the places of its inputs.

    from_document_starts: each document has its own row, so it is scored without any text before it; else the file is
    one stream, cut every `context_length` tokens. With `max_tokens`, about as many targets, in rows spread evenly.
    """
    rows = (document_rows if from_document_starts else contiguous_rows)(token_file, context_length)
    chosen = np.arange(len(rows))
    lengths = rows.row_lengths()
    if max_tokens is not None and max_tokens < token_file.n_targets:
        n_chosen = max(1, len(rows) * max_tokens // token_file.n_targets)
        chosen = np.arange(n_chosen) * len(rows) // n_chosen
    # Rows of about equal length side by side need little padding.
    chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
    for first in range(0, len(chosen), batch_size):
        rows_of_batch = chosen[first : first + batch_size]
        places_BT = rows.places(rows_of_batch, int(lengths[rows_of_batch].max()))
        yield batch_of(token_file, places_BT), places_BT

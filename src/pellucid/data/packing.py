"""Packing: divides the tokens of a file into rows.

A row is one or more runs of consecutive tokens, followed by padding.

Shapes: B rows of a batch, T positions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.data.token_file import TokenFile

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """The runs of the token file that make up each row.

    Run r has the inputs tokens[starts[r] : starts[r] + lengths[r]]; row i has the runs from first_runs[i] to
    first_runs[i + 1] - 1.
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
        """The number of inputs in each row, without padding."""
        return np.add.reduceat(self.lengths, self.first_runs[:-1])

    def places(self, rows: Integers, width: int) -> Integers:
        """The positions of the rows' inputs in the token file, (rows, width); -1 for padding."""
        places_BT = np.full((len(rows), width), -1, dtype=np.int64)
        for b, row in enumerate(rows):
            runs = slice(self.first_runs[row], self.first_runs[row + 1])
            spans = zip(self.starts[runs], self.lengths[runs], strict=True)
            places_T = np.concatenate([np.arange(start, start + length) for start, length in spans])
            places_BT[b, : len(places_T)] = places_T
        return places_BT


def contiguous_rows(token_file: TokenFile, context_length: int) -> Rows:
    """The file as one stream, cut every `context_length` tokens: each token but the first is a target once."""
    starts = np.arange(0, token_file.n_targets, context_length)
    return Rows.one_run_each(starts, np.minimum(context_length, token_file.n_targets - starts))


def document_rows(token_file: TokenFile, context_length: int) -> Rows:
    """One row per document, from the end_of_text before it to its last token.

    A document of more than `context_length` tokens continues in further rows.
    """
    starts, lengths, _ = _document_runs(token_file, context_length)
    return Rows.one_run_each(starts, lengths)


def packed_document_rows(token_file: TokenFile, context_length: int) -> Rows:
    """Rows packed with complete documents, each starting at a document.

    Only documents of more than `context_length` tokens are cut; each further part starts a row too. Best-fit
    decreasing: the longest document goes first, each into the fullest row that has room for it. Within a row, documents
    keep the order of the file, so that position says nothing about length.
    """
    starts, lengths, continues = _document_runs(token_file, context_length)
    row_of = np.empty(len(starts), dtype=np.int64)
    row_of[continues] = np.arange(np.count_nonzero(continues))
    rows_with_room: list[list[int]] = [[] for _ in range(context_length + 1)]
    rooms: list[int] = []  # the different rooms of the rows that are not full, ascending

    def open_row(row: int, room: int) -> None:
        if not rows_with_room[room]:
            insort(rooms, room)
        rows_with_room[room].append(row)

    for row, length in zip(row_of[continues].tolist(), lengths[continues].tolist(), strict=True):
        open_row(row, context_length - length)
    n_rows = int(np.count_nonzero(continues))
    documents = np.flatnonzero(~continues)
    for run in documents[np.argsort(-lengths[documents], kind="stable")].tolist():
        length = int(lengths[run])
        least = bisect_left(rooms, length)
        if least < len(rooms):
            room = rooms[least]
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                del rooms[least]
        else:
            room, row = context_length, n_rows
            n_rows += 1
        row_of[run] = row
        open_row(row, room - length)
    order = np.lexsort((starts, ~continues, row_of))
    first_runs = np.searchsorted(row_of[order], np.arange(n_rows + 1))
    return Rows(starts[order], lengths[order], first_runs)


def _document_runs(token_file: TokenFile, context_length: int) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Documents cut to runs of at most `context_length`: starts, lengths, and whether a run continues a document."""
    boundaries = token_file.boundaries
    lengths = np.diff(boundaries)
    n_runs = -(-lengths // context_length)
    # 0, 1, 2, … within each document: the index among all runs minus that of the document's first run.
    part = np.arange(n_runs.sum()) - np.repeat(np.cumsum(n_runs) - n_runs, n_runs)
    starts = np.repeat(boundaries[:-1], n_runs) + part * context_length
    return starts, np.minimum(context_length, np.repeat(boundaries[1:], n_runs) - starts), part > 0

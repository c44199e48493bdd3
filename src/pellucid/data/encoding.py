"""Encoding on all cores: batches of text go to processes, their token ids come back in order.

Words are looked up in Python, which runs on one core per process. Each process has a pipe of its own: when the parent
is gone, however it ended, the pipe is closed, and the process ends too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, cycle, islice
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from pellucid.corpora.corpus import Piece
from pellucid.errors import DataError, OutOfMemoryError
from pellucid.tokenizer import Tokenizer

Batch = list[Piece]
Ids = list[NDArray[np.uint32]]

BATCHES_WITHOUT_PROCESSES = 8  # a few megabytes are encoded before processes would have started
MOST_PROCESSES = 8  # beyond, reading and writing take longer than encoding


def encode_batches(tokenizer: Tokenizer, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Ids]]:
    """Each batch with the token ids of its pieces, in order. Raises DataError as `tokenizer.encode_batch` does.

    In memory are one batch per process and the one that is given back.
    """
    remaining = iter(batches)
    for batch in islice(remaining, BATCHES_WITHOUT_PROCESSES):
        yield batch, tokenizer.encode_batch([piece.text for piece in batch])
    if (first := next(remaining, None)) is not None:
        n_processes = min(MOST_PROCESSES, os.cpu_count() or 1)
        yield from _encode_in_processes(tokenizer, chain([first], remaining), n_processes)


def _encode_in_processes(
    tokenizer: Tokenizer, batches: Iterable[Batch], n_processes: int
) -> Iterator[tuple[Batch, Ids]]:
    """Each process has one batch at a time, so that neither side ever waits for room in a pipe that the other fills."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a program with threads may hang
    connections: list[Connection] = []
    for _ in range(n_processes):
        ours, theirs = context.Pipe()
        context.Process(target=_answer, args=(theirs, tokenizer.to_json()), daemon=True).start()
        theirs.close()
        connections.append(ours)
    try:
        asked: deque[tuple[Connection, Batch]] = deque()
        for connection, batch in zip(cycle(connections), batches, strict=False):
            if len(asked) == n_processes:
                yield _received(*asked.popleft())
            with _its_end_is_an_error():
                connection.send([piece.text for piece in batch])
            asked.append((connection, batch))
        while asked:
            yield _received(*asked.popleft())
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def _its_end_is_an_error() -> Iterator[None]:
    """A process ends before its time if the system ends it, and that happens where memory is scarce."""
    try:
        yield
    except (EOFError, ConnectionError):
        raise OutOfMemoryError("encoding", "a process ended without an answer", "free some memory") from None


def _received(connection: Connection, batch: Batch) -> tuple[Batch, Ids]:
    with _its_end_is_an_error():
        answer: Ids | DataError = connection.recv()
    if isinstance(answer, DataError):
        raise answer
    return batch, answer


def _answer(connection: Connection, tokenizer_json: str) -> None:
    """What a process does until nobody asks any more. Ctrl-C in a terminal reaches it too, but is not its business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tokenizer = Tokenizer.from_json(tokenizer_json)
    answer: Ids | DataError
    with suppress(EOFError, BrokenPipeError):
        while True:
            try:
                answer = tokenizer.encode_batch(connection.recv())
            except DataError as error:
                answer = error
            connection.send(answer)

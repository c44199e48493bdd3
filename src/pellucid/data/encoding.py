"""Encoding on all cores: parts of a corpus go to worker processes, and their token ids come back in order.

A part of a text file is sent as its position in the file, and read by the worker. Each worker has its own pipe: when
the parent has ended, for whatever reason, the pipe is closed, and the worker ends too.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, cycle, islice
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.corpora.corpus import Part, Piece
from pellucid.data.token_file import POSITION_TYPE, token_type
from pellucid.errors import OutOfMemoryError, PellucidError
from pellucid.runtime.processes import without_user_script
from pellucid.tokenizer import Tokenizer

PARTS_WITHOUT_PROCESSES = 8  # a few megabytes are encoded before processes would have started
MOST_PROCESSES = 8  # beyond, writing takes longer than encoding
ASKED_PER_PROCESS = 2  # while one result waits for the parent, the next is computed
ENCODED_BYTES = 1 << 20  # of text; more than a part has, unless it is one endless word


class Encoded(NamedTuple):
    """Text as tokens, with an end_of_text after each document. ends: the positions of these end_of_text.

    ends_part: whether this is the last piece of its part.
    """

    tokens: NDArray[np.unsignedinteger]
    ends: NDArray[np.int64]
    n_bytes: int
    n_characters: int
    ends_part: bool


def encode_parts(tokenizer: Tokenizer, parts: Iterable[Part], n_processes: int | None = None) -> Iterator[Encoded]:
    """The tokens of the parts, in order; by default on all cores, with the same result as on one.

    Raises what reading and encoding raise. At most two parts per process, and the current one, are in memory.
    """
    remaining = iter(parts)
    for part in islice(remaining, PARTS_WITHOUT_PROCESSES):
        yield from _encode(tokenizer, part)
    if (first := next(remaining, None)) is not None:
        n_processes = n_processes or min(MOST_PROCESSES, os.cpu_count() or 1)
        yield from _encode_in_processes(tokenizer, chain([first], remaining), n_processes)


def _encode(tokenizer: Tokenizer, part: Part) -> Iterator[Encoded]:
    pieces: list[Piece] = []
    n_bytes = 0
    for piece in part:
        if n_bytes >= ENCODED_BYTES:
            yield _encoded(tokenizer, pieces, n_bytes, ends_part=False)
            pieces, n_bytes = [], 0
        pieces.append(piece)
        n_bytes += len(piece.text.encode())
    yield _encoded(tokenizer, pieces, n_bytes, ends_part=True)


def _encoded(tokenizer: Tokenizer, pieces: list[Piece], n_bytes: int, *, ends_part: bool) -> Encoded:
    end = np.array([tokenizer.end_of_text])
    ids: list[NDArray[np.integer]] = []
    ends: list[int] = []
    n_tokens = 0
    for piece, ids_of_piece in zip(pieces, tokenizer.encode_exactly([piece.text for piece in pieces]), strict=True):
        ids.append(ids_of_piece)
        n_tokens += len(ids_of_piece)
        if piece.ends_document:
            ids.append(end)
            ends.append(n_tokens)
            n_tokens += 1
    tokens = np.concatenate([np.array([], np.int64), *ids]).astype(token_type(tokenizer.vocab_size))
    n_characters = sum(len(piece.text) for piece in pieces)
    return Encoded(tokens, np.array(ends, POSITION_TYPE), n_bytes, n_characters, ends_part)


def _encode_in_processes(tokenizer: Tokenizer, parts: Iterable[Part], n_processes: int) -> Iterator[Encoded]:
    """Encode parts in worker processes, each of which works in order. See `_work` for why there is no deadlock."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a program with threads may hang
    connections: list[Connection] = []
    for _ in range(n_processes):
        ours, theirs = context.Pipe()
        with without_user_script():
            context.Process(target=_work, args=(theirs, tokenizer.to_json()), daemon=True).start()
        theirs.close()
        connections.append(ours)
    try:
        pending: deque[Connection] = deque()
        for connection, part in zip(cycle(connections), parts, strict=False):
            if len(pending) == ASKED_PER_PROCESS * n_processes:
                yield from _results(pending.popleft())
            with _lost_worker_is_an_error():
                connection.send(part)
            pending.append(connection)
        while pending:
            yield from _results(pending.popleft())
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def _lost_worker_is_an_error() -> Iterator[None]:
    """Inside, a lost worker raises OutOfMemoryError: the system kills processes when memory is scarce."""
    try:
        yield
    except (EOFError, ConnectionError):
        raise OutOfMemoryError("encoding", "a process ended without an answer", "free some memory") from None


def _results(connection: Connection) -> Iterator[Encoded]:
    is_last = False
    while not is_last:
        with _lost_worker_is_an_error():
            result: Encoded | PellucidError = connection.recv()
        if isinstance(result, PellucidError):
            raise result
        is_last = result.ends_part
        yield result


def _work(connection: Connection, tokenizer_json: str) -> None:
    """Encode parts, as a worker process, until the pipe closes. Ctrl-C is left to the parent.

    A thread sends each result, so that this process reads on even while the pipe is full.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tokenizer = Tokenizer.from_json(tokenizer_json)
    with suppress(EOFError, ConnectionError), ThreadPoolExecutor(1) as sender:
        sent = sender.submit(lambda: None)
        while True:
            for result in _encoded_or_error(tokenizer, connection.recv()):
                sent.result()
                sent = sender.submit(connection.send, result)


def _encoded_or_error(tokenizer: Tokenizer, part: Part) -> Iterator[Encoded | PellucidError]:
    try:
        yield from _encode(tokenizer, part)
    except PellucidError as error:
        yield error

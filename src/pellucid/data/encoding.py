"""Text as tokens: the pieces of a corpus, in order, some at a time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.corpora.corpus import Piece
from pellucid.data.token_file import POSITION_TYPE, token_type
from pellucid.tokenizer import Tokenizer

BYTES_AT_ONCE = 1 << 19  # of UTF-8; in memory, text may take four times as much


class Encoded(NamedTuple):
    """Text as tokens, with an end_of_text after each document. ends: the positions of these end_of_text."""

    tokens: NDArray[np.unsignedinteger]
    ends: NDArray[np.int64]
    n_bytes: int
    n_characters: int


def encode_pieces(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> Iterator[Encoded]:
    """The tokens of the pieces, in order. Raises what reading them raises, and DataError if they cannot be encoded."""
    batch, n_bytes = list[Piece](), 0
    for piece in pieces:
        batch.append(piece)
        n_bytes += len(piece.text.encode())
        if n_bytes >= BYTES_AT_ONCE:
            yield _encoded(tokenizer, batch, n_bytes)
            batch, n_bytes = [], 0
    yield _encoded(tokenizer, batch, n_bytes)


def _encoded(tokenizer: Tokenizer, pieces: list[Piece], n_bytes: int) -> Encoded:
    texts = [tokenizer.as_a_start(each.text) if each.goes_on else each.text for each in pieces]
    ids, ends, n_tokens = list[NDArray[np.integer]](), list[int](), 0
    for piece, ids_of_piece in zip(pieces, tokenizer.encode_exactly(texts), strict=True):
        ids.append(ids_of_piece)
        n_tokens += len(ids_of_piece)
        if piece.ends_document:
            ids.append(np.array([tokenizer.end_of_text]))
            ends.append(n_tokens)
            n_tokens += 1
    tokens = np.concatenate([np.array([], np.int64), *ids]).astype(token_type(tokenizer.vocab_size))
    return Encoded(tokens, np.array(ends, POSITION_TYPE), n_bytes, sum(len(piece.text) for piece in pieces))

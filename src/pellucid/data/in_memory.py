"""A few texts as tokens, in memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pellucid.corpora.corpus import Piece
from pellucid.data.encoding import encode_pieces
from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError
from pellucid.tokenizer import Tokenizer


def text_as_tokens(file: Path, tokenizer: Tokenizer) -> TokenFile:
    """The tokens of a text file, or of all that match a glob, in memory; each file is a document.

    DataError if it is not UTF-8 text, empty, or cannot be encoded.
    """
    from pellucid.corpora.text_files import text_file_pieces  # not for pieces that are at hand

    pieces = list(text_file_pieces(file))
    if not pieces:
        raise DataError(str(file), "holds no text", "name a file with text in it")
    return pieces_as_tokens(str(file), pieces, tokenizer)


def pieces_as_tokens(name: str, pieces: Sequence[Piece], tokenizer: Tokenizer) -> TokenFile:
    """The tokens of these pieces, in memory. DataError if they cannot be encoded."""
    encoded = [each.tokens for each in encode_pieces(tokenizer, pieces)]
    tokens = np.concatenate([np.array([tokenizer.end_of_text], encoded[0].dtype), *encoded])
    return TokenFile(name, tokens, np.flatnonzero(tokens == tokenizer.end_of_text))

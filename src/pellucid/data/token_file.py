"""Documents as token ids on disk, read through a memory map: a corpus may be larger than the memory.

    <name>.bin             end_of_text  document 1  end_of_text  document 2  end_of_text … document n  end_of_text
    <name>.documents.bin   the positions of the n + 1 end_of_text in it

Ids are little-endian uint16, or uint32 for more than 65,536 of them; positions are little-endian int64. The first
end_of_text is there because a document begins after one: generation starts from it too.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

POSITION_TYPE = np.dtype("<i8")


def token_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest type that holds every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def documents_path(path: Path) -> Path:
    """Where the document index of a token file is."""
    return path.with_suffix(".documents.bin")


@dataclass(frozen=True)
class TokenFile:
    """name: the split, for messages.   tokens: all ids.   boundaries: the position of each end_of_text.

    Document i is tokens[boundaries[i] + 1 : boundaries[i + 1]].
    """

    name: str
    tokens: NDArray[np.unsignedinteger]
    boundaries: NDArray[np.int64]

    @classmethod
    def open(cls, path: Path, vocab_size: int) -> TokenFile:
        """Maps the files; nothing is read before it is used."""
        tokens = np.memmap(path, dtype=token_type(vocab_size), mode="r")
        boundaries = np.memmap(documents_path(path), dtype=POSITION_TYPE, mode="r")
        # Plain views of the same pages: slices of np.memmap itself cost microseconds.
        return cls(path.stem, np.asarray(tokens), np.asarray(boundaries))

    @property
    def n_targets(self) -> int:
        """Tokens that can be predicted: all but the first, which has nothing before it."""
        return len(self.tokens) - 1

    @property
    def end_of_text(self) -> int:
        return int(self.tokens[0])


class TokenFileWriter(ExitStack):
    """Writes a token file as a stream, in a `with` statement; call `end_document` after each document."""

    def __init__(self, path: Path, *, vocab_size: int, end_of_text: int) -> None:
        super().__init__()
        self._type = token_type(vocab_size)
        self._end_of_text = np.array([end_of_text])
        self._tokens, self._boundaries = (self.enter_context(p.open("wb")) for p in (path, documents_path(path)))
        self.n_tokens = 0
        self.end_document()  # a document begins after an end_of_text, the first one too

    def append(self, ids: NDArray[np.integer]) -> None:
        """Adds tokens to the current document."""
        self._tokens.write(ids.astype(self._type).tobytes())
        self.n_tokens += len(ids)

    def end_document(self) -> None:
        self._boundaries.write(np.array([self.n_tokens], dtype=POSITION_TYPE).tobytes())
        self.append(self._end_of_text)

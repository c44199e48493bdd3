"""Token files: documents as token ids on disk, read through a memory map, so a corpus may be larger than memory.

    <name>.bin             end_of_text  document 1  end_of_text  document 2  end_of_text … document n  end_of_text
    <name>.documents.bin   the positions of the n + 1 end_of_text in it
    <name>.targets.bin     of conversations and where a tool answers: for each token a byte, 1 if it is learned, else 0

Ids are little-endian uint16, or uint32 for more than 65,536 of them; positions are little-endian int64. Every document
begins after an end_of_text, also the first, as in generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

POSITION_TYPE = np.dtype("<i8")


def token_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """The smallest integer type that holds every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def documents_path(path: Path) -> Path:
    """The path of a token file's document index."""
    return path.with_suffix(".documents.bin")


def targets_path(path: Path) -> Path:
    """The path of a token file's mask of tokens to learn."""
    return path.with_suffix(".targets.bin")


@dataclass(frozen=True)
class TokenFile:
    """A split as tokens. Document i is tokens[boundaries[i] + 1 : boundaries[i + 1]].

    name: the split, for messages.   tokens: all ids.   boundaries: the position of each end_of_text.
    is_target: which tokens are to be learned (those of answers, or all but those of a tool); None for all.
    """

    name: str
    tokens: NDArray[np.unsignedinteger]
    boundaries: NDArray[np.int64]
    is_target: NDArray[np.bool_] | None = None

    @classmethod
    def open(cls, path: Path, vocab_size: int) -> TokenFile:
        """Map the files into memory; nothing is read before it is used."""
        tokens = np.memmap(path, dtype=token_type(vocab_size), mode="r")
        boundaries = np.memmap(documents_path(path), dtype=POSITION_TYPE, mode="r")
        is_target = None
        if targets_path(path).exists():
            is_target = np.asarray(np.memmap(targets_path(path), dtype=np.bool_, mode="r"))
        # Plain views of the same pages: slices of np.memmap itself cost microseconds.
        return cls(path.stem, np.asarray(tokens), np.asarray(boundaries), is_target)

    @property
    def n_targets(self) -> int:
        """The number of tokens that can be predicted: all but the first, which has nothing before it."""
        return len(self.tokens) - 1

    @property
    def n_losses(self) -> int:
        """The number of these that are to be learned."""
        return self.n_targets if self.is_target is None else int(np.count_nonzero(self.is_target[1:]))

    @property
    def end_of_text(self) -> int:
        return int(self.tokens[0])


class TokenFileWriter(ExitStack):
    """Writes a token file as a stream, in a `with` statement. Each document has an end_of_text after it."""

    def __init__(self, path: Path, *, vocab_size: int, end_of_text: int) -> None:
        super().__init__()
        self._type, self._n_tokens = token_type(vocab_size), 0
        self._tokens, self._positions = (self.enter_context(file.open("wb")) for file in (path, documents_path(path)))
        self.append(np.array([end_of_text]), ends=[0])  # the first document, too, begins after one

    def append(self, ids: NDArray[np.integer], ends: Sequence[int] | NDArray[np.int64] = ()) -> None:
        """Add tokens to the current document, or to several: `ends` are the positions of any end_of_text among them."""
        self._tokens.write(ids.astype(self._type).tobytes())
        self._positions.write((np.asarray(ends, POSITION_TYPE) + self._n_tokens).astype(POSITION_TYPE).tobytes())
        self._n_tokens += len(ids)

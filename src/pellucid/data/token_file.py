"""Token files: documents as token ids on disk, read through a memory map, so a corpus may be larger than memory.

    <name>.bin             end_of_text  document 1  end_of_text  document 2  end_of_text … document n  end_of_text
    <name>.documents.bin   the positions of the n + 1 end_of_text in it
    <name>.targets.bin     for conversations alone: a byte for each token, 1 if it is to be learned, else 0

Ids are little-endian uint16, or uint32 for more than 65,536 of them; positions are little-endian int64. Every document
begins after an end_of_text, also the first, as in generation.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pellucid.config.base import Section
from pellucid.files import fsync

POSITION_TYPE = np.dtype("<i8")
Pair = Annotated[tuple[int, int], Field(strict=False)]  # a list in JSON


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
    is_target: which tokens are to be learned (those of answers); None for all.
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


class WrittenTokens(Section):
    """The part of a token file that is on disk: counts, and the bytes and CRC-32 of its two files."""

    n_tokens: int
    n_boundaries: int
    n_bytes: Pair
    crc32s: Pair


class TokenFileWriter(ExitStack):
    """Writes a token file as a stream, in a `with` statement; call `end_document` after each document.

    With `written` it continues a file from there, and drops everything after it.
    """

    def __init__(self, path: Path, *, vocab_size: int, end_of_text: int, written: WrittenTokens | None = None) -> None:
        super().__init__()
        self._type = token_type(vocab_size)
        self._end_of_text = np.array([end_of_text])
        self._paths = path, documents_path(path)
        self._files = [self.enter_context(file.open("r+b" if written else "wb")) for file in self._paths]
        self.n_tokens, self.n_boundaries = (written.n_tokens, written.n_boundaries) if written else (0, 0)
        self._crc32s = written.crc32s if written else (0, 0)
        if written:
            for file, n_bytes in zip(self._files, written.n_bytes, strict=True):
                file.truncate(n_bytes)
                file.seek(n_bytes)
        else:
            self.end_document()  # every document begins after an end_of_text

    def append(self, ids: NDArray[np.integer], ends: Sequence[int] | NDArray[np.int64] = ()) -> None:
        """Add tokens to the current document, or to several: `ends` are the positions of any end_of_text among them."""
        boundaries = np.asarray(ends, POSITION_TYPE) + self.n_tokens
        contents = ids.astype(self._type).tobytes(), boundaries.astype(POSITION_TYPE).tobytes()
        for file, content in zip(self._files, contents, strict=True):
            file.write(content)
        tokens_crc32, boundaries_crc32 = map(zlib.crc32, contents, self._crc32s)
        self._crc32s = tokens_crc32, boundaries_crc32
        self.n_tokens += len(ids)
        self.n_boundaries += len(boundaries)

    def end_document(self) -> None:
        self.append(self._end_of_text, ends=[0])

    def sync(self) -> WrittenTokens:
        """Flush everything to disk, and return how far that is."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.flush()
            fsync(path)
        tokens_file, boundaries_file = self._files
        return WrittenTokens(
            n_tokens=self.n_tokens,
            n_boundaries=self.n_boundaries,
            n_bytes=(tokens_file.tell(), boundaries_file.tell()),
            crc32s=self._crc32s,
        )


def is_written(path: Path, written: WrittenTokens) -> bool:
    """Whether a token file begins with the recorded bytes. OSError if it cannot be read."""
    paths = path, documents_path(path)
    return tuple(map(_crc32_of_start, paths, written.n_bytes)) == written.crc32s


def _crc32_of_start(path: Path, n_bytes: int) -> int:
    crc32 = 0
    with path.open("rb") as file:
        while block := file.read(min(n_bytes, 1 << 20)):
            crc32 = zlib.crc32(block, crc32)
            n_bytes -= len(block)
    return crc32

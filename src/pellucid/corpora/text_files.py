"""Local UTF-8 text files as a corpus, read as a stream: no file needs to fit into memory.

Text is not changed, not even line endings, so bits per byte are those of the file. Only a byte-order mark is skipped.
A file that is not UTF-8, or contains a NUL byte, is refused with the position of the bad byte.
"""

import codecs
import mmap
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pellucid.config.data import FORMAT_OF_SUFFIX
from pellucid.corpora.corpus import Corpus, Piece, Split, cut_into_pieces
from pellucid.corpora.local_files import (
    CONVERT,
    each_once,
    find_files,
    hashes_of,
    is_utf16,
    notes_on_copies,
    opened,
    some,
    without,
)
from pellucid.errors import DataError

BLOCK_BYTES = 1 << 16
FILES_OF_ROWS = (".jsonl", ".parquet")
END_OF_TEXT = "<|endoftext|>"  # as files of many documents often have it between them


class ByteRange(NamedTuple):
    """The bytes of a file from `start` up to, not including, `stop`."""

    path: Path
    start: int
    stop: int


class TextFilesCorpus(Corpus):
    """Text files as documents, in the given order; the matches of a glob are sorted.

    A document ends at the end of each file and, if there is a separator, at each separator. `validation_files` are
    held out, even if `files` matches them too. Without any, the last `validation_fraction` of the bytes is held out:
    exactly, without a separator (a file may be cut there), otherwise from the start of a document on.
    Raises DataError if a file is missing, unreadable or a folder, or all are empty; InputOutputError if the disk fails.
    """

    def __init__(
        self,
        files: Sequence[str],
        *,
        separator: str | None = None,
        validation_files: Sequence[str] = (),
        validation_fraction: float = 0.1,
    ) -> None:
        self.separator, self.validation_fraction = separator, validation_fraction
        names, held_out = find_text_files(files), find_text_files(validation_files)
        self.validation_files = list(held_out)
        self.train_files = without(names, held_out)
        self._names = {path: names[path] for path in self.train_files} | held_out
        self._ranges = self._split()

    @cached_property
    def identity(self) -> dict[str, object]:
        """Hashes of the contents, and settings; not names or dates: a copied or touched file is the same corpus."""
        identity: dict[str, object] = {
            "type": "text",
            "files": [self._hashes[path] for path in self.train_files],
            "validation_files": [self._hashes[path] for path in self.validation_files],
            "separator": self.separator,
            "validation_fraction": None if self.validation_files else self.validation_fraction,
        }
        if self.separator is None and max(len(self.train_files), len(self.validation_files)) > 1:
            identity["each_file_is_a_document"] = True  # earlier versions made one document of all of them
        return identity

    @cached_property
    def _hashes(self) -> dict[Path, str]:
        return hashes_of(self.local_files())

    def local_files(self) -> list[Path]:
        return [*self.train_files, *self.validation_files]

    def notes(self) -> list[str]:
        """Notes on what was left out, and on what may be a mistake: a separator that occurs in no file, equal files."""
        notes = notes_on_copies(self._names, self._hashes)
        if self.separator is None:
            if ended := [path for path in self.local_files() if _holds(path, END_OF_TEXT)]:
                meant = f'did you mean "corpus.separator={END_OF_TEXT}"?'
                notes.append(f"{END_OF_TEXT} is plain text in {some(ended)}: {meant}")
            return notes
        whole = [path for path in self.local_files() if not _holds(path, self.separator)]
        if len(whole) == len(self.local_files()):
            notes.append(f"the separator {self.separator!r} occurs in none of the files: each is one document")
        return notes + [hint for path in whole if (hint := _hint_on_line_ends(path, self.separator))][:1]

    def pieces(self, split: Split) -> Iterator[Piece]:
        """Documents of a split. DataError names the file and the byte that is not UTF-8."""
        return chain.from_iterable(cut_into_pieces(read_text(part), self.separator) for part in self._ranges[split])

    def _split(self) -> dict[Split, list[ByteRange]]:
        train = [_whole(path) for path in self.train_files]
        if self.validation_files:
            return {"train": train, "validation": [_whole(path) for path in self.validation_files]}
        n_bytes = sum(part.stop - part.start for part in train)
        if n_bytes == 0:
            raise DataError(", ".join(map(str, self.train_files)), "empty", "name files with text in them")
        cut = int(n_bytes * (1 - self.validation_fraction))
        if self.separator is None:
            cut += _unfinished_bytes(_part(train, cut, n_bytes))
        else:
            cut = _document_start_near(cut, train, self.separator.encode())
        return {"train": _part(train, 0, cut), "validation": _part(train, cut, n_bytes)}


def find_text_files(patterns: Sequence[str]) -> dict[Path, list[Path]]:
    """The files that paths and globs match, each with its other names. DataError for a file of rows, or for no file."""
    files = find_files(patterns)
    for path in files:
        if (suffix := path.suffix.lower()) in FILES_OF_ROWS:
            corpus = f"{{type: hugging_face, path: {FORMAT_OF_SUFFIX[suffix]}, data_files: {path}}}"
            fix = f'use "corpus={corpus}" (docs/data.md)'
            raise DataError(str(path), "holds rows, not plain text", fix)
    return each_once(files)


def text_file_pieces(file: Path) -> Iterator[Piece]:
    """A file, or each that a glob matches, as one document. Raises as TextFilesCorpus does."""
    for path in find_text_files([str(file)]):
        yield from cut_into_pieces(read_text(_whole(path)))


def read_text(part: ByteRange) -> Iterator[str]:
    """The text of a range of bytes, block by block. DataError names the byte that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = part.start
    with opened(part.path) as file:
        file.seek(position)
        while position < part.stop:
            block = file.read(min(BLOCK_BYTES, part.stop - position))
            if not block:
                raise DataError(str(part.path), "became shorter while it was being read", "prepare it again")
            before_nul, nul, _ = block.partition(b"\0")
            n_waiting = len(decoder.getstate()[0])
            is_last = position + len(block) == part.stop
            try:
                text = decoder.decode(before_nul, final=is_last or bool(nul))
            except UnicodeDecodeError as error:
                raise _not_text(part.path, position - n_waiting + error.start, error.reason) from None
            if nul:
                raise _not_text(part.path, position + len(before_nul), "a NUL byte, as in binary files and UTF-16")
            yield text
            position += len(block)


def _not_text(path: Path, byte: int, what: str) -> DataError:
    return DataError(str(path), f"not UTF-8 text at byte {byte}: {what}", CONVERT)


def _whole(path: Path) -> ByteRange:
    """The range of a whole file, without its byte-order mark."""
    with opened(path) as file:
        first = file.read(3)
        size = os.fstat(file.fileno()).st_size
    if is_utf16(first):
        raise _not_text(path, 0, "the byte-order mark of UTF-16")
    return ByteRange(path, len(codecs.BOM_UTF8) if first == codecs.BOM_UTF8 else 0, size)


def _part(ranges: Sequence[ByteRange], start: int, stop: int) -> list[ByteRange]:
    """Bytes start to stop of the ranges, counted as if they were one file."""
    parts, begin = [], 0
    for path, first, last in ranges:
        low, high = first + max(0, start - begin), min(last, first + stop - begin)
        if low < high:
            parts.append(ByteRange(path, low, high))
        begin += last - first
    return parts


def _unfinished_bytes(ranges: Sequence[ByteRange]) -> int:
    """The number of bytes at the start of the ranges that belong to a character which began before them."""
    if not ranges:
        return 0
    with opened(ranges[0].path) as file:
        file.seek(ranges[0].start)
        first = file.read(3)
    return len(first) - len(first.lstrip(bytes(range(0x80, 0xC0))))


def _document_start_near(offset: int, ranges: Sequence[ByteRange], separator: bytes) -> int:
    """The start of the document that contains byte `offset`, or of the second document if that is the first."""
    begin = 0
    for path, first, last in ranges:
        end = begin + last - first
        if offset < end:
            with opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                position = first + offset - begin
                before = content.rfind(separator, first, position)
                after = content.find(separator, max(first, position - len(separator) + 1), last - 1)
            if before >= 0:
                return begin + before + len(separator) - first
            if begin > 0:
                return begin
            if after >= 0:
                return after + len(separator) - first
            if len(ranges) > 1:
                return end
        begin = end
    path, text = ranges[0].path, separator.decode()
    what = f"the separator {text!r} leaves a single document, so none can be held out for validation"
    fix = _hint_on_line_ends(path, text) or "fix corpus.separator or name corpus.validation_files"
    raise DataError(str(path), what, fix)


def _holds(path: Path, text: str) -> bool:
    """Whether a text occurs in a file."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            return False  # which cannot be mapped
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(text.encode()) >= 0


def _hint_on_line_ends(path: Path, separator: str) -> str | None:
    """How to separate the documents of a file where the separator occurs only with the line ends of Windows."""
    in_windows = separator.replace("\r", "").replace("\n", "\r\n")
    if in_windows == separator or not _holds(path, in_windows):
        return None
    written = in_windows.encode("unicode_escape").decode()
    return f"the lines of {path} end in \\r\\n: write corpus.separator='\"{written}\"'"

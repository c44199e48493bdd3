"""Rows of local files: JSON, CSV, Parquet, or a text per line, as they are, in the order of the file.

Nothing is guessed: what a file holds as text stays that text, such as `NA`, `007` or `1969-07-21`. In CSV all cells are
text. A file that breaks the rules of its format is refused with the number of the line.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow
import pyarrow.parquet

from pellucid.corpora.local_files import CONVERT, is_utf16, opened
from pellucid.errors import DataError

ROWS_AT_A_TIME = 256
LIBRARY_ERRORS = (pyarrow.ArrowException, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
BLANKS = re.compile(r"[ \t\r\n]*")
MAYBE_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
csv.field_size_limit(2**31 - 1)  # otherwise a text may have 131,072 characters


class Row(NamedTuple):
    """The values of a row by the names of their columns, and where it is: its file, and the line or record."""

    where: str
    values: Mapping[str, Any]


Wanted = Sequence[Sequence[str]]
Reader = Callable[[BinaryIO, str], Iterator[Row]]


def rows_of_file(path: Path, file_format: str, wanted: Wanted, key: str | None = None) -> Iterator[Row]:
    """The rows of a file of format json, csv, text or parquet, which may be compressed (gz, bz2, xz, zst, zip).

    Of Parquet, only `wanted` columns are read; of JSON, the list under `key`, if given. DataError: not of this format,
    or damaged.
    """
    readers: dict[str, Reader] = {"json": partial(_json_rows, key=key), "csv": _csv_rows, "text": _text_rows}
    read = readers.get(file_format)
    with opened(path) as file:
        try:
            for name, content in _uncompressed(file, path):
                yield from read(content, name) if read else _parquet_rows(content, name, wanted)
        except (ArithmeticError, EOFError, OSError, RuntimeError, ValueError, *LIBRARY_ERRORS) as error:
            if getattr(error, "errno", None):  # of the disk
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            fix = f"write it again as {file_format}, or leave it out"
            raise DataError(str(path), f"is damaged, or is not {file_format} ({reason})", fix) from None


def columns_to_read(names: Sequence[str], wanted: Wanted) -> list[str]:
    """The wanted columns among these, as others may be images; none if no list of `wanted` is complete."""
    is_complete = any(set(each) <= set(names) for each in wanted)
    return [name for name in names if is_complete and any(name in each for each in wanted)]


def _zstandard(file: BinaryIO) -> BinaryIO:
    return io.BufferedReader(cast(io.RawIOBase, pyarrow.CompressedInputStream(file, "zstd")))


OPENER_OF: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh91AY&SY": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"(\xb5/\xfd": _zstandard,
}


def _uncompressed(file: BinaryIO, path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """The file, or each file of a zip archive, with its name; what it is compressed by shows in its first bytes."""
    start = file.read(16)
    file.seek(0)
    if start.startswith(b"PK\3\4"):
        with zipfile.ZipFile(file) as archive:
            for name in sorted(archive.namelist()):
                is_hidden = any(part.startswith((".", "__")) for part in name.split("/"))  # as macOS adds
                if not (name.endswith("/") or is_hidden):
                    with archive.open(name) as member:
                        yield f"{path}, {name}", cast(BinaryIO, member)
        return
    open_ = next((open_ for magic, open_ in OPENER_OF.items() if start.startswith(magic)), None)
    yield str(path), open_(file) if open_ else file


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    """The lines of a UTF-8 file, which end as in any system, with their ends but without a byte-order mark."""
    for number, line in enumerate(file, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            what = "UTF-16" if number == 1 and is_utf16(line) else f"byte {error.start + 1} of the line"
            raise DataError(f"{name}, line {number:,}", f"not UTF-8 text ({what})", CONVERT) from None
        if "\0" in text:
            raise DataError(f"{name}, line {number:,}", "a NUL byte, as in binary files and UTF-16", CONVERT)
        yield from io.StringIO(text.removeprefix("\ufeff") if number == 1 else text, newline="")


def _text_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    for number, line in enumerate(_lines(file, name), 1):
        yield Row(f"{name}, line {number:,}", {"text": line.rstrip("\r\n")})


def _csv_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """Rows with the names of the first line. Cells that a short row lacks are None. Tabs separate those of *.tsv."""
    reader = csv.reader(_lines(file, name), delimiter="\t" if ".tsv" in name.lower() else ",", strict=True)
    names: list[str] = []
    line = 1
    try:
        for cells in reader:
            where = f"{name}, line {line:,}"
            line = reader.line_num + 1
            if not names:
                names = _each_once(cells, where)
                if "\t" in "".join(names):
                    raise DataError(where, "tabs stand between its cells", "name the file *.tsv, or use commas")
            elif len(cells) > len(names):
                fix = 'put texts with commas or line ends into double quotes: "..."'
                raise DataError(where, f"{len(cells)} cells, but there are {len(names)} columns", fix)
            elif cells:
                yield Row(where, dict.fromkeys(names) | dict(zip(names, cells, strict=False)))
    except csv.Error as error:
        fix = 'write a quote inside of a quoted text twice: "She said ""yes""."'
        raise DataError(f"{name}, line {line:,}", f"its quotes are not those of CSV ({error})", fix) from None


def _each_once(names: list[str], where: str) -> list[str]:
    """The names. DataError if one appears twice, as then the texts of one column would be lost."""
    if twice := [name for name in set(names) if name and names.count(name) > 1]:
        raise DataError(where, f"{twice[0]!r} appears twice", "give each column or key a name of its own")
    return names


def _json_rows(file: BinaryIO, name: str, key: str | None = None) -> Iterator[Row]:
    """The objects of a file: one per line, or a list of them; a single object may take several lines.

    A text alone is a record with the column `text`, and a list of whole numbers alone one with the column `ids`.
    With a key, they are those of the list that the object has under it.
    """
    lines = enumerate(_lines(file, name), 1)
    is_first = True
    for number, line in lines:
        where = f"{name}, line {number:,}"
        if is_first and _goes_on(line):
            line += "".join(each for _, each in lines)
        for value in _values(line, name, number):
            if key is not None:
                value = value.get(key) if isinstance(value, dict) else None
                if not isinstance(value, list):
                    raise DataError(where, f"has no list under the key {key!r}", "name its key in corpus.field")
            is_list = is_first and isinstance(value, list) and not (value and _are_ids(value))
            is_first = False
            for i, record in enumerate(value if is_list else [value], 1):
                yield _json_row(record, f"{name}, record {i:,}" if is_list else where)


def _goes_on(line: str) -> bool:
    """Whether a JSON value begins in this line and does not end in it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return not line.isspace() and error.pos >= len(line.rstrip())
    except (RecursionError, ValueError):
        pass
    return False


def _values(text: str, name: str, first_line: int) -> Iterator[Any]:
    """The JSON values in a text. Its first line is that of the file with this number."""
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    where = f"{name}, line {first_line:,}"
    at, end = 0, len(text)
    while (at := BLANKS.match(text, at).end()) < end:  # type: ignore[union-attr]  # it matches everywhere
        try:
            value, stop = decoder.raw_decode(text, at)
            if MAYBE_HALF_A_PAIR.search(text, at, stop):
                json.dumps(value, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            where = f"{name}, line {first_line + error.lineno - 1:,}"
            what = f"not JSON ({error.msg}, column {error.colno:,})"
            raise DataError(where, what, "fix it, or leave it out") from None
        except RecursionError:
            raise DataError(where, "is nested too deeply", "leave it out") from None
        except UnicodeEncodeError:
            raise DataError(where, "half of a surrogate pair, which is not a character", "leave it out") from None
        except ValueError as error:
            raise DataError(where, str(error).partition(";")[0], "fix it, or leave it out") from None
        yield value
        at = stop


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return values


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _json_row(record: Any, where: str) -> Row:
    if isinstance(record, str) or _are_ids(record):
        record = {"text" if isinstance(record, str) else "ids": record}
    if not isinstance(record, dict):
        fix = 'give each record as {"column": "text", ...}, and ids as [2, 0, 1]'
        raise DataError(where, f"holds {type(record).__name__}, not a record", fix)
    return Row(where, record)


def _parquet_rows(file: BinaryIO, name: str, wanted: Wanted) -> Iterator[Row]:
    table = pyarrow.parquet.ParquetFile(file)
    names = _each_once(table.schema_arrow.names, name)
    columns = columns_to_read(names, wanted)
    if not columns:  # the reader says what is missing
        yield Row(f"{name}, record 1", dict.fromkeys(names))
        return
    numbers = count(1)
    for batch in table.iter_batches(ROWS_AT_A_TIME, columns=columns):
        for values in batch.to_pylist():
            yield Row(f"{name}, record {next(numbers):,}", values)

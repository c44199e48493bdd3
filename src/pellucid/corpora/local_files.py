"""Which local files a corpus reads, and how they are opened: paths, globs, `~`, links; no file twice."""

import codecs
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pellucid.errors import DataError, InputOutputError
from pellucid.files import sha256

CONVERT = "save it as UTF-8 in an editor (`Save as`, encoding UTF-8), or leave it out"


def find_files(patterns: Sequence[str], suffix: str = ".txt") -> list[Path]:
    """The files that paths and globs match, as they are spelled; those of a glob are sorted.

    suffix: of the files that a folder may hold. DataError for a folder, and for a pattern without a match.
    """
    return [path for pattern in patterns for path in _matches(pattern, suffix)]


def _matches(pattern: str, suffix: str) -> list[Path]:
    name = os.path.expanduser(pattern)
    if os.path.isdir(name):
        inside, below = (os.path.join(pattern, each) for each in (f"*{suffix}", os.path.join("**", f"*{suffix}")))
        raise DataError(pattern, "is a folder", f"name the files in it: {inside}, or {below} with its subfolders")
    # An existing file whose name contains brackets or stars comes before the matches.
    names = [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))
    if files := [Path(path) for path in names if os.path.isfile(path)]:
        return files
    if os.path.exists(name):
        raise DataError(pattern, "is not a regular file", "name files with text in them")
    fix = "check the path"
    if pattern.startswith(("http://", "https://")):
        fix = "a file of the web is read by corpus.download (docs/data.md), or download it and name the file"
    elif "," in pattern:
        fix = f"write several files as a list: [{', '.join(each.strip() for each in pattern.split(','))}]"
    raise DataError(pattern, f"no such file (looked in {os.getcwd()})", fix)


def each_once(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Each file under its first name, with its other names: links to it, and other spellings of its path."""
    names: dict[object, dict[Path, None]] = {}
    for path in files:
        names.setdefault(_number_of(path), {})[path] = None
    return {first: others for first, *others in names.values()}


def without(files: Iterable[Path], held_out: Iterable[Path]) -> list[Path]:
    """The files that are not held out. DataError if none is left."""
    numbers = set(map(_number_of, held_out))
    if not (left := [path for path in files if _number_of(path) not in numbers]):
        raise DataError("corpus.files", "all of them are validation_files", "name files to train on")
    return left


def _number_of(path: Path) -> object:
    """A key that all names of a file share. Some file systems number no files."""
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


def notes_on_copies(names: dict[Path, list[Path]], hashes: Mapping[Path, str]) -> list[str]:
    """Notes on files that have several names, and on files with equal contents; none if there are none.

    What is held out in one file may be trained on in its copy.
    """
    same = [f"{other} is {path}" for path, others in names.items() for other in others]
    notes = [f"each file is read once: {some(same)}"] if same else []
    first: dict[str, Path] = {}
    pairs = [(path, first.setdefault(digest, path)) for path, digest in hashes.items()]
    same = [f"{path} holds the same as {other}" for path, other in pairs if path != other and path.stat().st_size]
    return [*notes, *([f"{some(same)}: what is held out may be trained on as well"] if same else [])]


def some(items: Sequence[object], most: int = 3) -> str:
    """The items, or the first of many and how many more there are."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read; errors of the system become DataError or InputOutputError."""
    try:
        with path.open("rb") as file:
            yield file
    except PermissionError as error:
        raise DataError(str(path), f"cannot be read ({error.strerror})", "check its permissions") from None
    except OSError as error:
        raise InputOutputError(str(path), f"cannot be read ({error.strerror})", "fix the disk") from error


def hashes_of(files: Iterable[Path]) -> dict[Path, str]:
    """The SHA-256 of the bytes of each file. DataError or InputOutputError for one that cannot be read."""
    hashes = {}
    for path in files:
        with opened(path):
            hashes[path] = sha256(path)
    return hashes


def is_utf16(start: bytes) -> bool:
    """Whether a file starts with the byte-order mark of UTF-16."""
    return start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))

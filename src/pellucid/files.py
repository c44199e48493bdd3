"""Reliable files: written atomically and durably, read with limits, checked by hashes."""

import errno
import hashlib
import math
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid import failpoints

RUNS_ROOT = Path("checkpoints")  # where runs are written unless --run-dir says otherwise


def fsync(path: Path) -> None:
    """Flush a file to disk or, for a folder, the names in it (which Windows does on its own)."""
    is_folder = path.is_dir()
    failpoints.reached(f"fsync {'folder' if is_folder else path.name}")
    if is_folder and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A draft to write, file or folder, which replaces `target` if all goes well, and is otherwise deleted.

    Its contents are on disk before it is renamed, so even after a power loss `target` is complete, old, or absent.
    OSError for a file in the place of a folder.
    """
    if target.name in ("", ".."):  # the current folder, the one above, or the topmost
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    draft = target.with_name(f".tmp-{target.name}")
    _remove(draft)  # left by a killed process
    try:
        yield draft
        if draft.is_dir():
            for path in sorted(draft.iterdir()):
                fsync(path)
        fsync(draft)
        if target.is_dir() and draft.is_dir():  # a file is replaced in one step, a folder is not
            discard(target)
        os.replace(draft, target)
        fsync(target.parent)
    except OSError as error:
        # A full disk names no file, and the user does not know the draft's name.
        name = str(target) if error.filename is None else error.filename
        error.filename = name.replace(str(draft), str(target)) if isinstance(name, str) else name
        raise
    finally:
        _remove(draft)


def write_whole(target: Path, text: str) -> None:
    """Write a text file as `written_whole` does."""
    with written_whole(target) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def discard(folder: Path) -> None:
    """Delete a folder. It is renamed first, so an interrupted deletion leaves no incomplete folder of that name."""
    if folder.exists():
        trash = folder.with_name(f".trash-{folder.name}")
        _remove(trash)
        failpoints.reached("rename to trash")
        os.rename(folder, trash)
        failpoints.reached("delete trash")
        shutil.rmtree(trash, ignore_errors=True)


def require_room(folder: Path, n_bytes: int) -> None:
    """Raise OSError unless the disk of a folder has so many bytes free."""
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(f"it needs {n_bytes / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free")


def require_regular(path: Path) -> None:
    """Raise OSError for a pipe, a socket, a device or a folder, which might never begin or never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_at_most(path: Path, n_bytes: int) -> bytes:
    """The contents of a file, or of a pipe with a writer. OSError if that is more than `n_bytes`."""
    with open(path, "rb", opener=_open_without_waiting) as stream:
        content = stream.read(n_bytes + 1)  # /dev/zero has no end
    if len(content) > n_bytes:
        raise OSError(errno.EFBIG, f"more than {n_bytes:,} bytes", str(path))
    return content


def _open_without_waiting(file: str, flags: int) -> int:
    """Open a file without waiting: a pipe without a writer is empty. Windows has no such pipes."""
    if sys.platform == "win32":
        return os.open(file, flags)
    descriptor = os.open(file, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def sha256(path: Path, n_bytes: int | None = None) -> str:
    """SHA-256, in hexadecimal, of a regular file or its first `n_bytes`, read block by block."""
    require_regular(path)
    digest, n_left = hashlib.sha256(), math.inf if n_bytes is None else n_bytes
    with path.open("rb") as file:
        while block := file.read(int(min(1 << 20, n_left))):
            digest.update(block)
            n_left -= len(block)
    return digest.hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

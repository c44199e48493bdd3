"""Files to rely on: on the disk before anything speaks of them, and known by a hash when they are read again."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from pellucid import failpoints


def fsync(path: Path) -> None:
    """Waits until the disk has the file or, for a folder, the names in it (which Windows does by itself)."""
    failpoints.reached(f"fsync {'folder' if path.is_dir() else path.name}")
    if sys.platform == "win32" and path.is_dir():
        return  # and of a file it asks that one may write it
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """In hexadecimal. The file is never in memory as a whole."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

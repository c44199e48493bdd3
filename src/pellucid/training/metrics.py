"""metrics.jsonl: one JSON object per line, appended while the run trains (and cut back by `logs.py`)."""

import json
import logging
import math
from pathlib import Path
from typing import Any

from pellucid.files import require_regular

_log = logging.getLogger(__name__)

Row = dict[str, Any]


def append_row(file: Path, row: Row) -> None:
    """Append one row."""
    with file.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(finite(row)) + "\n")


def finite(row: Row) -> Row:
    """The row with None for NaN and infinity, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def read_rows(file: Path) -> list[Row]:
    """All rows. Lines that hold none are skipped: a crash may cut the last one short."""
    return [row for line in _lines(file) if (row := row_in(line)) is not None]


def warn_of_damage(file: Path) -> None:
    """Warn of each complete line that is not a row."""
    for number, line in enumerate(_lines(file), 1):
        if line.endswith(b"\n") and row_in(line) is None:
            _log.warning("%s:%d: not a row of metrics, and left out; the file was damaged or edited", file, number)


def _lines(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    require_regular(file)
    return file.read_bytes().splitlines(keepends=True)


def row_in(line: bytes) -> Row | None:
    """The row in a line; None if the line is damaged or incomplete."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None

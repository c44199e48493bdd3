"""metrics.jsonl: one JSON object a line, appended while the run goes (and cut back when it resumes: `logs.py`)."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

from pellucid.files import require_regular

_log = logging.getLogger(__name__)

Row = dict[str, Any]


def append_row(file: Path, row: Row) -> None:
    """Adds one row."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(finite(row)) + "\n")


def finite(row: Row) -> Row:
    """The row with None for NaN and infinity, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def read_rows(file: Path) -> list[Row]:
    """All rows. A last line that a crash cut short is left out; another that cannot be read is, with a warning."""
    if file.exists():
        require_regular(file)
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    rows = [row_in(line) for line in lines]
    for number, (line, row) in enumerate(zip(lines, rows, strict=True), 1):
        if row is None and line.endswith(b"\n"):
            _log.warning("%s:%d: no row; damaged or edited", file, number)
    return [row for row in rows if row is not None]


def row_in(line: bytes) -> Row | None:
    """The row that a line holds; None if it is not a whole one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None

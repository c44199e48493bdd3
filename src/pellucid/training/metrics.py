"""metrics.jsonl: one JSON object a line, appended while the run goes, cut back when it resumes from an earlier step."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def append_row(file: Path, row: Row) -> None:
    """Adds one row."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(finite(row)) + "\n")


def finite(row: Row) -> Row:
    """The row with None for NaN and infinity, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def read_rows(file: Path) -> list[Row]:
    """All rows; a last line that a crash cut short is left out."""
    if not file.exists():
        return []
    rows = []
    for line in file.read_bytes().splitlines():
        if (row := row_in(line)) is None:
            break
        rows.append(row)
    return rows


def cut_back(file: Path, step: int) -> None:
    """Drops the rows after `step`, which the resumed run will write again."""
    cut_from(file, lambda line: (row := row_in(line)) is None or not line.endswith(b"\n") or row["step"] > step)


def cut_from(file: Path, is_too_late: Callable[[bytes], bool]) -> None:
    """Ends the file before the first line that is too late. Cutting needs no room and leaves no half-written file."""
    if not file.exists():
        return
    kept = 0
    with file.open("rb") as stream:
        for line in stream:
            if is_too_late(line):
                break
            kept += len(line)
    os.truncate(file, kept)


def row_in(line: bytes) -> Row | None:
    """The row that a line holds; None if it is not a whole one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None

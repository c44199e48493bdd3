"""metrics.jsonl: one JSON object per line, appended while the run trains (and cut back by `logs.py`)."""

import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

from pellucid.files import require_regular

_log = logging.getLogger(__name__)

Row = dict[str, Any]
MOST_STEPS = 10**18  # as a folder's name has at most 18 digits


def append_row(file: Path, row: Row) -> None:
    """Append one row."""
    with file.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(json.dumps(finite(row)) + "\n")


def finite(value: Any) -> Any:
    """The row, or a value in it, with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    """The row in a line; None if the line is damaged, incomplete or edited, so that its readers need not check it.

    `step` is an integer, `skills` a table of numbers, `expert_load` a list of numbers for each layer, and each other
    column a number; None where there is none.
    """
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # as it is sent to a page
    except (ValueError, RecursionError):
        return None
    has_step = isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < MOST_STEPS
    return row if has_step and all(_fits(*each) for each in row.items()) else None


def _fits(column: str, value: Any) -> bool:
    if column == "skills" and isinstance(value, dict):
        return all(isinstance(table, dict) and all(map(_is_figure, table.values())) for table in value.values())
    if column == "expert_load" and isinstance(value, list):
        return all(isinstance(layer, list) and all(map(_is_figure, layer)) for layer in value)
    return _is_figure(value)


def _is_figure(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) <= sys.float_info.max)

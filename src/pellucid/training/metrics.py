"""metrics.jsonl: one JSON object a line, appended while the run goes, cut back when it resumes from an earlier step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def append_row(file: Path, row: Row) -> None:
    """Adds one row. NaN and infinity, which JSON has not, become null."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(finite) + "\n")


def read_rows(file: Path) -> list[Row]:
    """All rows; a last line that a crash cut short is left out."""
    if not file.exists():
        return []
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def cut_back(file: Path, step: int) -> None:
    """Drops the rows after `step`, which the resumed run will write again."""
    kept = [row for row in read_rows(file) if row["step"] <= step]
    file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

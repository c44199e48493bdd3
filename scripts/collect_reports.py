"""How far a class is: a table from what each student wrote with `pellucid learn --report > NAME.json`.

    python scripts/collect_reports.py reports/*.json

A column for each lesson: exercises done of all, "+2h" for two hints. Below, the exercises at which most are stuck.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """The lessons of one report, in any encoding of Unicode: PowerShell writes UTF-16."""
    try:
        rows = list(json.loads(file.read_bytes())["lessons"])
        table({"": rows}), stuck({"": rows})  # they may find what they need
        return rows
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        sys.exit(f"error: {file}: not a report; make one with `pellucid learn --report > {file.name}`")


def table(reports: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each student, a column for each lesson that anyone has begun."""
    lessons = sorted({row["lesson"] for rows in reports.values() for row in rows}, key=lambda title: title.split()[0])
    lines = ["| student | " + " | ".join(lessons) + " |", "|---|" + "---|" * len(lessons)]
    for name, rows in sorted(reports.items()):
        by_lesson = {row["lesson"]: row for row in rows}
        lines.append(f"| {name} | " + " | ".join(_cell(by_lesson.get(lesson)) for lesson in lessons) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    n_hints = sum(row["hints"].values())
    return f"{len(row['done'])} of {row['of']}" + (f" +{n_hints}h" if n_hints else "")


def stuck(reports: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The exercises at which students are, the most frequent first."""
    counts = Counter(
        f"{row['lesson']}: {row['next']['exercise']}" for rows in reports.values() for row in rows if row["next"]
    )
    return [f"{n} at {where}" for where, n in counts.most_common(5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="NAME.json")
    reports = {file.stem: read(file) for file in parser.parse_args().files}
    print(table(reports))
    for line in stuck(reports):
        print(line)


if __name__ == "__main__":
    main()

"""How far a class is: a table from what each student wrote with `pellucid learn --report > NAME.json`.

    python scripts/collect_reports.py reports/*.json
    python scripts/collect_reports.py --rerun submissions/ --csv points.csv --grades grades.csv

A column for each lesson: exercises done of all, "+2h" for two hints. Below, the exercises at which most are stuck.

With --rerun, the files of each student, submissions/NAME/lesson_01.py and so on, are checked here, with seeds that no
student has seen. An exercise gives a point for each of its stars. What the system protects you from is said first.
"""

import argparse
import csv
import json
import sys
from collections import Counter
from pathlib import Path
from secrets import randbelow
from typing import Any

import rerun


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


def check_again(given: argparse.Namespace) -> None:
    """Check what students handed in, and write the points."""
    print(f"protection: {rerun.protection()}; files that change their own checks are not found out: look at imports")
    print(f"seeds: {' '.join(map(str, given.seeds))}")
    points: dict[str, list[dict[str, Any]]] = {}
    for student, files in rerun.submissions_in(given.rerun).items():
        rows = points[student] = rerun.points(files, given.seeds, gib=given.memory, minutes=given.minutes)
        unusual = sorted({name for row in rows for name in row["unusual_imports"].split()})
        look = f"; imports {', '.join(unusual)}" if unusual else ""
        score, most = (sum(row[key] for row in rows) for key in ("points", "of"))
        print(f"{student}: {score} of {most} points{look}", flush=True)
    if not points:
        sys.exit(f"error: {given.rerun}: no folder of a student with a lesson file; it has to be NAME/lesson_01.py")
    if given.csv:
        write(given.csv, [{"student": student, **row} for student, rows in points.items() for row in rows])
    if given.grades:
        write(given.grades, grades(points))


def grades(points: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each student and lesson, in the columns of nbgrader's own export; Moodle maps them when it imports."""
    rows = []
    for student, each in points.items():
        for lesson in sorted({row["lesson"] for row in each}):
            of_it = [row for row in each if row["lesson"] == lesson]
            score, most = (sum(row[key] for row in of_it) for key in ("points", "of"))
            rows.append({"assignment": f"lesson_{lesson:02}", "student_id": student, "score": score, "max_score": most})
    return rows


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    with open(file, "w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows({key: _as_text(value) for key, value in row.items()} for row in rows)


def _as_text(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: names and faults are a student's words."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="NAME.json")
    parser.add_argument("--rerun", type=Path, metavar="FOLDER", help="check what students handed in")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a row for each student and exercise")
    parser.add_argument("--grades", type=Path, metavar="FILE", help="a row for each student and lesson")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1 + randbelow(2**31) for _ in range(2)], metavar="N")
    parser.add_argument("--memory", type=float, default=8.0, metavar="GIB", help="of addresses, for each process")
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="of CPU time for a process; twice that for a student"
    )
    given = parser.parse_args()
    if given.rerun:
        check_again(given)
        return
    if not given.files:
        parser.error("there is nothing to do; name the reports, or a folder with --rerun")
    reports = {file.stem: read(file) for file in given.files}
    print(table(reports))
    for line in stuck(reports):
        print(line)


if __name__ == "__main__":
    main()

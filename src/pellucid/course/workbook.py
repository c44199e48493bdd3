"""A student's folder: a file for each lesson that was begun, and a note of what is done."""

import json
from pathlib import Path
from typing import Any

from filelock import FileLock

from pellucid.course.attempt import MOST_SECONDS, Outcome, attempt
from pellucid.course.exercises import Exercise, Lesson, all_lessons
from pellucid.errors import DataError
from pellucid.files import read_at_most, write_whole
from pellucid.version import __version__

NOTES = "progress.json"
MADE_WITH = "made_with.json"  # of a folder that was handed out: the version, and hashes of the solutions
MAX_NOTES = 1 << 20  # bytes


class Workbook:
    """The files of one student. `done` and `n_hints` survive in progress.json; the rest is in the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / NOTES
        read = _read(self.notes)
        self.done: dict[str, list[str]] = read["done"]
        self.n_hints: dict[str, int] = read["hints"]

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder is a student's: it was handed out, or something was checked in it."""
        return any((folder / name).is_file() for name in (NOTES, MADE_WITH))

    def file(self, lesson: Lesson) -> Path:
        return self.folder / f"{lesson.module}.py"

    def start(self, lesson: Lesson) -> bool:
        """Write the student's file of a lesson unless it is there. Says whether it is new."""
        if self.file(lesson).exists():
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.file(lesson), lesson.stubs())
        return True

    def reset(self, lesson: Lesson) -> Path | None:
        """Start a lesson again. The old file, if any, gets the name that is returned: nothing is ever lost."""
        old_file = None
        if self.file(lesson).exists():
            names = (self.folder / f"{lesson.module}.before_{i}.py" for i in range(1, 10**6))
            old_file = next(path for path in names if not path.exists())
            self.file(lesson).rename(old_file)
        self.done.pop(lesson.module, None)
        for exercise in lesson.exercises:
            self.n_hints.pop(_key(lesson, exercise.name), None)
        self.start(lesson)
        self._save(lesson)
        return old_file

    def check(self, lesson: Lesson, exercise: str | None = None, most_seconds: float = MOST_SECONDS) -> list[Outcome]:
        """Check a lesson's exercises, or one of them, and note what is done."""
        asked = [each.name for each in lesson.exercises if exercise in (None, each.name)]
        outcomes = attempt(lesson, self.folder.resolve(), self.done, asked, most_seconds)
        cannot_run = any(outcome.is_last for outcome in outcomes)
        checked = asked if cannot_run else [outcome.exercise for outcome in outcomes]
        right = {outcome.exercise for outcome in outcomes if outcome.fault is None}
        right |= set(self.done.get(lesson.module, [])) - {*checked}
        self.done[lesson.module] = [each.name for each in lesson.exercises if each.name in right]
        self._save(lesson)
        return outcomes

    def report(self) -> dict[str, Any]:
        """For a teacher: every lesson that was begun, how much of it is right today, and the hints that were used."""
        rows = []
        for lesson in filter(self._is_begun, all_lessons()):
            wrong = [outcome for outcome in self.check(lesson) if outcome.fault is not None]
            rows.append(
                {
                    "lesson": lesson.title,
                    "done": self.done[lesson.module],
                    "of": len(lesson.exercises),
                    "next": {"exercise": wrong[0].exercise, "fault": wrong[0].fault} if wrong else None,
                    "faults": {outcome.exercise: outcome.fault for outcome in wrong},
                    "hints": {each.name: self.hints_shown(lesson, each.name) for each in lesson.exercises},
                }
            )
        return {"pellucid_version": __version__, "lessons": rows}

    def _is_begun(self, lesson: Lesson) -> bool:
        file = self.file(lesson)
        return file.exists() and (lesson.module in self.done or read_at_most(file, 1 << 24) != lesson.stubs().encode())

    def missing(self, lesson: Lesson) -> list[Exercise]:
        """The exercises that were not right when they were last checked."""
        return [each for each in lesson.exercises if each.name not in self.done.get(lesson.module, [])]

    def is_done(self, lesson: Lesson) -> bool:
        return all(each.is_optional for each in self.missing(lesson))

    def hints_shown(self, lesson: Lesson, exercise: str) -> int:
        return self.n_hints.get(_key(lesson, exercise), 0)

    def one_more_hint(self, lesson: Lesson, exercise: str, n_there_are: int) -> int:
        """Unfold another hint of an exercise: how many are to be shown now."""
        shown = min(self.hints_shown(lesson, exercise) + 1, n_there_are)
        self.n_hints[_key(lesson, exercise)] = shown
        self._save(lesson)
        return shown

    def _save(self, lesson: Lesson) -> None:
        """Write the notes of one lesson; those of others stay as another `learn` may have written them meanwhile."""

        def with_ours(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
            others = {key: value for key, value in theirs.items() if key.partition(".")[0] != lesson.module}
            return others | {key: value for key, value in ours.items() if key.partition(".")[0] == lesson.module}

        with FileLock(self.folder / ".progress.lock"):
            read = _read(self.notes)
            self.done, self.n_hints = with_ours(read["done"], self.done), with_ours(read["hints"], self.n_hints)
            write_whole(self.notes, json.dumps({"done": self.done, "hints": self.n_hints}, indent=2))


def _key(lesson: Lesson, exercise: str) -> str:
    """An exercise's name among all lessons: two of them may have a `count_pairs`."""
    return f"{lesson.module}.{exercise}"


def _read(notes: Path) -> dict[str, Any]:
    """The notes of progress.json; empty ones if there is none. DataError if it is damaged."""
    if not notes.exists():
        return {"done": {}, "hints": {}}
    try:
        read = json.loads(read_at_most(notes, MAX_NOTES))
        names = [name for done in read["done"].values() for name in (done if isinstance(done, list) else [None])]
        if all(isinstance(name, str) for name in names) and all(type(n) is int for n in read["hints"].values()):
            return {"done": read["done"], "hints": read["hints"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise DataError(str(notes), "it is damaged", "delete it; your answers are in the lesson files beside it, and "
                    "`pellucid learn` finds again what is done")  # fmt: skip

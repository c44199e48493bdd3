"""The command of the lessons: learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pellucid.cli.terminal import print_result
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.course.exercises import Lesson
    from pellucid.course.workbook import Workbook


def learn(
    number: Annotated[int | None, Argument(metavar="LESSON", help="A lesson's number; all are listed without.")] = None,
    hint: Annotated[bool, Option("--hint", help="Show one more hint for the exercise you are at.")] = False,
    reset: Annotated[
        int | None, Option("--reset", metavar="LESSON", help="Start a lesson again; your file is kept aside.")
    ] = None,
    report: Annotated[
        bool, Option("--report", help="Check every lesson you have begun, and print the result as JSON, for a teacher.")
    ] = False,
    folder: Annotated[Path, Option("--folder", metavar="DIR", help="Where your answers are.")] = Path("my_lessons"),
) -> None:
    """Take the lessons: exercises, checked as you write them."""
    from pellucid.course.exercises import all_lessons
    from pellucid.course.workbook import Workbook

    lessons = {lesson.number: lesson for lesson in all_lessons()}
    for asked in (number, reset):
        if asked is not None and asked not in lessons:
            raise ConfigError("command line", f"there is no lesson {asked}", f"choose one of {_listed(lessons)}")
    if hint and number is None:
        raise ConfigError("command line", "--hint needs the number of a lesson", "try `pellucid learn 1 --hint`")
    workbook = Workbook(folder)
    if report:
        print_result(workbook.report())
    elif reset is not None:
        old_file = workbook.reset(lessons[reset])
        note_of_old = f"; what you had is in {old_file}" if old_file else ""
        print_result(f"{workbook.file(lessons[reset])} is new{note_of_old}")
    elif number is None:
        print_result(_overview(list(lessons.values()), workbook))
    else:
        print_result(_report(lessons[number], workbook, hint))


def _listed(lessons: dict[int, Lesson]) -> str:
    return ", ".join(str(number) for number in sorted(lessons))


def _overview(lessons: list[Lesson], workbook: Workbook) -> str:
    """A line for each lesson, and what to do next."""
    width = max(len(lesson.title) for lesson in lessons)
    lines = [f"    {'lesson':{width}}     done  minutes of exercises"]
    following = None
    for lesson in lessons:
        n_done, mark = workbook.n_done(lesson), "✓" if workbook.is_done(lesson) else " "
        lines.append(f"  {mark} {lesson.title:{width}}   {n_done} of {len(lesson.exercises)} {lesson.minutes:>5}")
        if following is None and not workbook.is_done(lesson):
            following = lesson
    if following is None:
        return "\n".join([*lines, "", "All is done."])
    return "\n".join([*lines, "", f"Next: read {_shown(following.page)}, and run `pellucid learn {following.number}`."])


def _report(lesson: Lesson, workbook: Workbook, hint: bool) -> str:
    """The exercises that are right, and about the first that is not: what is wrong, what to read, what to do."""
    file = workbook.file(lesson)
    is_new = workbook.start(lesson)
    outcomes = workbook.check(lesson)
    lines = [lesson.title, *(f"  ✓ {outcome.exercise}" for outcome in outcomes if outcome.fault is None)]
    last = outcomes[-1]
    if last.fault is None:
        return "\n".join([*lines, "", "All exercises of this lesson are done."])
    exercise = next(each for each in lesson.exercises if each.name == last.exercise)
    stars = "★" * exercise.difficulty
    lines += [
        f"  {'✗' if last.is_written else '·'} {exercise.name} ({exercise.minutes} minutes, {stars}): {last.fault}",
        "",
        f"read   {_shown(lesson.page)}#{exercise.section}",
        f"write  {file}, from line {_line_of(exercise.name, file)}{', which is new' if is_new else ''}",
    ]
    n_shown = workbook.hints_shown(lesson, exercise.name)
    if hint:
        n_shown = workbook.one_more_hint(lesson, exercise.name, len(exercise.hints))
    lines += [f"hint   {text}" for text in exercise.hints[:n_shown]]
    if n_shown < len(exercise.hints):
        lines.append(f"hint   {'another' if n_shown else 'one'} with `pellucid learn {lesson.number} --hint`")
    return "\n".join(lines)


def _shown(path: Path) -> Path:
    """A path from here, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _line_of(name: str, file: Path) -> int:
    """The line at which a function is defined; 1 if it is not."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.startswith(f"def {name}(")), 1)

"""The command of the lessons: learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from pellucid.cli.terminal import print_result
from pellucid.errors import ConfigError
from pellucid.runtime.processes import command_of

if TYPE_CHECKING:
    from pellucid.course.exercises import Exercise, Lesson
    from pellucid.course.workbook import Workbook


def learn(
    number: Annotated[int | None, Argument(metavar="LESSON", help="A lesson's number; all are listed without.")] = None,
    exercise: Annotated[str | None, Argument(metavar="EXERCISE", help="One exercise; all without.")] = None,
    hint: Annotated[bool, Option("--hint", help="Show one more hint for the exercise you are at.")] = False,
    reset: Annotated[
        int | None, Option("--reset", metavar="LESSON", help="Start a lesson again; your file is kept aside.")
    ] = None,
    report: Annotated[
        bool, Option("--report", help="Check every lesson you have begun, and print the result as JSON, for a teacher.")
    ] = False,
    page: Annotated[bool, Option("--page", help="Run the lesson's page with your functions.")] = False,
    notebook: Annotated[bool, Option("--notebook", help="Write the page into your folder as a notebook.")] = False,
    open_page: Annotated[bool, Option("--open", help="Show the page with its live parts in a browser.")] = False,
    new: Annotated[
        Path | None, Option("--new", metavar="DIR", help="Write a folder to hand out: pages and files, no solutions.")
    ] = None,
    folder: Annotated[
        Path | None, Option("--folder", metavar="DIR", help="Where your answers are; my_lessons, unless you are in it.")
    ] = None,
) -> None:
    """Take the lessons: exercises, checked as you write them."""
    from pellucid.course.exercises import all_lessons
    from pellucid.course.handout import hand_out
    from pellucid.course.pages import write_notebook
    from pellucid.course.workbook import Workbook
    from pellucid.tables import folded

    lessons = {lesson.number: lesson for lesson in all_lessons()}
    for asked in (number, reset):
        if asked not in (None, *lessons):
            there_are = ", ".join(map(str, sorted(lessons)))
            raise ConfigError("command line", f"there is no lesson {asked}", f"choose one of {there_are}")
    _require_one_wish(
        {"--report": report, "--new": new is not None, "--reset": reset is not None},
        {"--hint": hint, "--page": page, "--notebook": notebook, "--open": open_page},
        number,
        exercise,
    )
    names = [each.name for each in lessons[number].exercises] if number is not None else []
    if exercise not in (None, *names):
        what = f"lesson {number} has no exercise {exercise}"
        raise ConfigError("command line", what, f"choose one of {', '.join(names)}")
    folder = folder or (Path() if Workbook.is_in(Path()) else Path("my_lessons"))
    workbook = Workbook(folder)
    if report:
        print_result(workbook.report())
    elif new is not None:
        hand_out(new)
        print_result(f"{new} has all pages, and in {new / 'my_lessons'} the files to fill in; start with `cd {new}`")
    elif reset is not None:
        old_file = workbook.reset(lessons[reset])
        note_of_old = f"; what you had is in {old_file}" if old_file else ""
        print_result(f"{workbook.file(lessons[reset])} is new{note_of_old}")
    elif number is None:
        print_result(_overview(list(lessons.values()), workbook))
    elif page:
        command = command_of("pellucid.course.pages", str(number), str(folder.resolve()))
        raise Exit(subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "utf-8"}).returncode)
    elif notebook:
        print_result(f"{write_notebook(lessons[number], folder)} is new; its first cell finds your functions")
    elif open_page:
        _open(lessons[number])
    else:
        lines = _report(lessons[number], workbook, exercise, hint).splitlines()
        print_result("\n".join(folded(line, 4 if line.startswith(" ") else 7) for line in lines))


def _require_one_wish(
    of_all: dict[str, bool], of_a_lesson: dict[str, bool], number: int | None, exercise: str | None
) -> None:
    """ConfigError for options that do not go together, and for one whose lesson is not named."""
    asked = [option for option, is_asked in (of_all | of_a_lesson).items() if is_asked]
    if len(asked) > 1:
        raise ConfigError("command line", f"{asked[0]} and {asked[1]} do not go together", "leave one of them out")
    if number is None and asked and asked[0] in of_a_lesson:
        what = f"{asked[0]} needs the number of a lesson"
        raise ConfigError("command line", what, f"try `pellucid learn 1 {asked[0]}`")
    if exercise is not None and asked not in ([], ["--hint"]):
        raise ConfigError("command line", f"{asked[0]} is not about one exercise", f"leave {exercise} out")


def _open(lesson: Lesson) -> None:
    """Show a page of the site, which is built first where its sources are."""
    root = lesson.page.parents[1]
    file, sources = root / "site" / "lessons" / f"{lesson.page.stem}.html", root / "scripts" / "site.yml"
    if not file.exists() and sources.exists() and find_spec("mkdocs"):
        print_result("The site is being built, once …")
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(sources)]
        subprocess.run(command, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})  # its advertisement
    if not file.exists():
        fix = "run `make site` in a clone of Pellucid; then no network is needed"
        raise ConfigError(str(file), "the site is not built", fix)
    webbrowser.open(file.as_uri())
    print_result(str(file))


def _overview(lessons: list[Lesson], workbook: Workbook) -> str:
    """A line for each lesson, and what to do next."""
    from pellucid.tables import table

    left = [lesson for lesson in lessons if not workbook.is_done(lesson)]
    rows = []
    for lesson in lessons:
        n_all, mark = len(lesson.exercises), " " if lesson in left else "✓"
        done = f"{n_all - len(workbook.missing(lesson))} of {n_all}"
        rows.append((f"{mark} {lesson.title}", done, str(lesson.minutes)))
    following = left[0] if left else None
    page = following and _page(following, workbook)
    end = f"Next: read {page}, and run `pellucid learn {following.number}`." if following else "All is done."
    styles = {lessons.index(following): "bold"} if following else {}
    return table(("  lesson", "done", "minutes of exercises"), rows, styles, below=["", end], is_cut=True)


def _report(lesson: Lesson, workbook: Workbook, exercise: str | None, hint: bool) -> str:
    """All that is right, and of the first that is not: why, what to read, and where to write. Then what is left."""
    from pellucid.course.attempt import BLAME
    from pellucid.course.exercises import all_lessons
    from pellucid.course.handout import is_of_another_version

    file = workbook.file(lesson)
    is_new = workbook.start(lesson)
    outcomes = workbook.check(lesson, exercise)
    lines = [lesson.title, *(f"  ✓ {outcome.exercise}" for outcome in outcomes if outcome.fault is None)]
    faults = [outcome for outcome in outcomes if outcome.fault is not None]
    optional = [each.name for each in lesson.exercises if each.is_optional]
    # The core of the page comes first, and what is optional and not begun last.
    faults.sort(key=lambda each: (each.exercise not in lesson.core, each.exercise in optional and not each.is_written))
    wrong = next(iter(faults), None)
    missing = [f"{each.name} (optional)" if each.is_optional else each.name for each in workbook.missing(lesson)]
    left = f"  · not done: {', '.join(missing)}"
    used = [f"    {line}" for line in _used(lesson, workbook)]
    if wrong is None or (exercise is None and workbook.is_done(lesson) and not wrong.is_written and not hint):
        if not missing:
            return "\n".join([*lines, *used, "", "All exercises of this lesson are done."])
        end = ["", "This lesson is done; later ones take ours for what is left."] if workbook.is_done(lesson) else []
        return "\n".join([*lines, left, *used, *end])
    asked = next(each for each in lesson.exercises if each.name == wrong.exercise)
    if exercise is None and asked.name not in lesson.core:
        lines.append("  the core of this lesson is done; the rest can wait")
    lines.append(f"  {'✗' if wrong.is_written else '·'} {_facts(asked)}: {wrong.fault}")
    lines += [left] if missing != [asked.name] else []
    lines += [*used, ""]
    if is_of_another_version(lesson, workbook.folder):
        lines.append("note   your folder is of another version of this lesson; `pellucid learn --new DIR` has today's")
    if blamed := BLAME.match(wrong.fault or ""):  # the place to write in is another function
        lesson = next(each for each in all_lessons() if each.module == blamed[2])
        asked, file = next(each for each in lesson.exercises if each.name == blamed[1]), workbook.file(lesson)
    lines.append(f"read   {_page(lesson, workbook)}#{asked.section}")
    if line := _line_of(asked.name, file):
        lines.append(f"write  {file}, from line {line}{', which is new' if is_new else ''}")
    if blamed:
        return "\n".join(lines)
    n_shown = workbook.hints_shown(lesson, asked.name)
    if hint:
        n_shown = workbook.one_more_hint(lesson, asked.name, len(asked.hints))
    lines += [f"hint   {text}" for text in asked.hints[:n_shown]]
    if n_shown < len(asked.hints):
        of_it = f"{lesson.number} {exercise}" if exercise else lesson.number
        lines.append(f"hint   {'another' if n_shown else 'one'} with `pellucid learn {of_it} --hint`")
    return "\n".join(lines)


def _facts(exercise: Exercise) -> str:
    optional = ", optional" if exercise.is_optional else ""
    return f"{exercise.name} ({exercise.minutes} minutes, {'★' * exercise.difficulty}{optional})"


def _used(lesson: Lesson, workbook: Workbook) -> list[str]:
    """Whose functions of earlier lessons the student's file calls."""
    from pellucid.course.exercises import all_lessons
    from pellucid.course.own import whose

    text = workbook.file(lesson).read_text(encoding="utf-8", errors="replace")
    imported = re.findall(r"^(?:from|import) (lesson_\d\d)\b", text, re.MULTILINE)
    lessons = [each for each in all_lessons() if each.module in imported]
    return [whose(each, workbook.done.get(each.module, []) if workbook.file(each).exists() else []) for each in lessons]


def _page(lesson: Lesson, workbook: Workbook) -> Path:
    """A lesson's page beside the student's folder, if that was handed out; else ours. From here, if it lies below."""
    theirs = workbook.folder.resolve().parent / lesson.page.name
    path = theirs if theirs.exists() else lesson.page
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _line_of(name: str, file: Path) -> int | None:
    """The line at which a function is defined; None if it is not."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.startswith(f"def {name}(")), None)

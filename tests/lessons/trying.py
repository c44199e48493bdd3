"""Mistakes and second solutions of the lessons' exercises, and what the checks say of them."""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid.course.attempt import Outcome, load_module, outcomes
from pellucid.course.exercises import Lesson


@dataclass(frozen=True)
class Attempt:
    """A function in place of the solution of its name. `says` is part of the check's answer; None if it is right."""

    exercise: str
    source: str
    says: str | None


_attempts: list[Attempt] = []  # of the file that is being read


def mistake(says: str) -> Callable[[Callable[..., Any]], None]:
    """A wrong solution, which a check must answer with a sentence that contains `says`."""
    return lambda function: _attempts.append(Attempt(function.__name__, _source(function), says))


def also_right(function: Callable[..., Any]) -> None:
    """A second solution."""
    _attempts.append(Attempt(function.__name__, _source(function), None))


def attempts_in(file: Path) -> list[Attempt]:
    """The attempts in a file of mistakes, in its order."""
    _attempts.clear()
    load_module(file, f"mistakes_of_{file.stem}")
    return list(_attempts)


def _source(function: Callable[..., Any]) -> str:
    """The text of a function without its decorators."""
    text = textwrap.dedent(inspect.getsource(function))
    return text[re.search(r"^def ", text, re.MULTILINE).start() :]


def with_attempt(solved: str, attempt: Attempt) -> str:
    """The text of an exercise file with one function replaced."""
    function = re.compile(rf"^def {attempt.exercise}\(.*?(?=^(?:def|class|@|# ----|\w)|\Z)", re.MULTILINE | re.DOTALL)
    replaced, n = function.subn(lambda _: attempt.source + "\n\n", solved)
    assert n == 1, f"{attempt.exercise} occurs {n} times"
    return replaced


def tried(lesson: Lesson, text: str, folder: Path, checks: dict[str, Callable[[ModuleType], None]]) -> list[Outcome]:
    """The outcomes of a student's file with this text, checked in this process."""
    # In a folder of its own: Python would take the bytecode of a file that was as long, and written in the same second.
    file = Path(tempfile.mkdtemp(dir=folder)) / f"{lesson.module}.py"
    file.write_text(text, encoding="utf-8")
    ours = sys.modules.get(lesson.module)
    try:
        return list(outcomes(lesson, file, checks))
    finally:  # other lessons import this one
        sys.modules.pop(lesson.module)
        if ours is not None:
            sys.modules[lesson.module] = ours

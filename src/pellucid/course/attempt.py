"""Run the checks of a lesson on a student's file, whatever that file does.

`attempt` starts a process of its own, so an endless loop, a full memory or `sys.exit()` costs one sentence, not the
command. The process checks one exercise after the other and ends at the first that is not right.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from pellucid.course.checks import Wrong
from pellucid.course.exercises import LESSONS, Lesson, all_lessons

MOST_SECONDS = 60.0  # for one exercise
Check = Callable[[ModuleType], None]


@dataclass(frozen=True)
class Outcome:
    """One exercise after its check. A fault is a sentence; None means that it is right."""

    exercise: str
    fault: str | None = None
    is_written: bool = True


def attempt(
    lesson: Lesson, file: Path, finished: Mapping[str, Path], most_seconds: float = MOST_SECONDS
) -> list[Outcome]:
    """The outcome of each exercise up to the first that is not right.

    `finished` names the student's files of other lessons that later ones build on: {"lesson_01": path}. Without one,
    ours takes its place.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "outcomes.jsonl"
        log.touch()
        others = [f"{name}={path}" for name, path in finished.items()]
        command = [sys.executable, "-m", "pellucid.course.attempt", str(lesson.number), str(file), str(log), *others]
        process = subprocess.Popen(command, stdout=2)  # what the student prints is no result: a report is JSON
        try:
            is_late = not _ends(process, log, most_seconds)
        finally:
            process.kill()
            process.wait()
        outcomes = [Outcome(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines() if line]
    if (outcomes and outcomes[-1].fault) or len(outcomes) == len(lesson.exercises):
        return outcomes
    name = lesson.exercises[len(outcomes)].name
    if is_late:
        fault = f"it was not done after {most_seconds:.0f} seconds; is there a loop without an end?"
    else:
        fault = f"Python ended in the middle of it (exit code {process.returncode}); is there enough memory?"
    return [*outcomes, Outcome(name, fault)]


def _ends(process: subprocess.Popen[bytes], log: Path, most_seconds: float) -> bool:
    """Whether the process ends before one exercise has taken too long. Each line of the log starts the clock anew.

    The first line, an empty one, tells that all is imported, which takes longer on a busy machine.
    """
    size, since = 0, time.monotonic()
    while process.poll() is None:
        if log.stat().st_size != size:
            size, since = log.stat().st_size, time.monotonic()
        if time.monotonic() - since > (most_seconds if size else 5 * MOST_SECONDS):
            return False
        time.sleep(0.02)
    return True


def outcomes(lesson: Lesson, file: Path, checks: Mapping[str, Check]) -> Iterator[Outcome]:
    """Check a file in this process: the outcome of each exercise up to the first that is not right."""
    try:
        module = load_module(file, lesson.module)
    except (Exception, SystemExit) as error:
        yield Outcome(lesson.exercises[0].name, f"{file.name} cannot be run: {_in_short(error, file)}")
        return
    for exercise in lesson.exercises:
        outcome = _outcome(lesson, exercise.name, module, file, checks[exercise.name])
        yield outcome
        if outcome.fault:
            return


def _outcome(lesson: Lesson, name: str, module: ModuleType, file: Path, check: Check) -> Outcome:
    if not hasattr(module, name):
        return Outcome(name, f"{file.name} has no {name} any more; `pellucid learn --reset {lesson.number}` keeps a "
                             "copy of your file and starts a new one")  # fmt: skip
    try:
        check(module)
    except Wrong as wrong:
        return Outcome(name, str(wrong))
    except NotImplementedError as error:
        is_this_one = str(error) == f"lesson {lesson.number}: {name}"
        return Outcome(name, "not written yet" if is_this_one else f"it needs {error}", is_written=not is_this_one)
    except (Exception, SystemExit) as error:
        return Outcome(name, f"it raised {_in_short(error, file)}")
    return Outcome(name)


def _in_short(error: BaseException, file: Path) -> str:
    """An error's class, the last line of the student's file that it passed, and its first line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    where = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{where}: {str(error).partition(chr(10))[0] or 'without a message'}"


def load_module(file: Path, name: str) -> ModuleType:
    """A file run as a module of that name, which others can import from then on."""
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def checks_of(lesson: Lesson) -> dict[str, Check]:
    """The checks of a lesson by the names of its exercises."""
    module = load_module(lesson.checks, f"checks_of_{lesson.module}")
    return {exercise.name: getattr(module, exercise.name) for exercise in lesson.exercises}


def main(number: str, file: str, log: str, *finished: str) -> None:
    sys.path[:0] = [str(LESSONS), str(LESSONS / "exercises")]
    sys.dont_write_bytecode = True
    for name, _, path in (each.partition("=") for each in finished):
        load_module(Path(path), name)
    lesson = next(lesson for lesson in all_lessons() if lesson.number == int(number))
    checks = checks_of(lesson)
    with open(log, "a", encoding="utf-8", buffering=1) as lines:  # each line is written at once
        print(file=lines)
        for outcome in outcomes(lesson, Path(file), checks):
            print(json.dumps(asdict(outcome)), file=lines)


if __name__ == "__main__":
    main(*sys.argv[1:])

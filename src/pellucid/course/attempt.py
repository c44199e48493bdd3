"""Run the checks of a lesson on a student's file, whatever that file does.

`attempt` starts a process of its own, so an endless loop, a full memory or `sys.exit()` costs one sentence, not the
command. The process checks one exercise after the other and ends at the first that is not right. It is no judge of
honesty: the student's file runs in the same Python as the checks, and can change them and their log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import IO, BinaryIO

from pellucid.course.checks import Wrong
from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from pellucid.errors import one_line
from pellucid.runtime.processes import command_of

MOST_SECONDS = 60.0  # for one exercise
MOST_PRINTED = 100_000  # characters that are shown of what a student's file prints
MOST_LOGGED = 1 << 16  # bytes that are read of the log: far more than the checks write
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
    last_line: list[str] = []  # of what the process prints; empty if that is nothing
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "outcomes.jsonl", "w+b") as log:
        others = [f"{name}={path}" for name, path in finished.items()]
        command = command_of("pellucid.course.attempt", str(lesson.number), str(file), log.name, *others)
        with _process(command, last_line) as process:
            is_late = not _ends(process, log, lesson, most_seconds)
        outcomes = _read_outcomes(log, lesson)
    if (outcomes and outcomes[-1].fault) or len(outcomes) == len(lesson.exercises):
        return outcomes
    name = lesson.exercises[len(outcomes)].name
    if is_late:
        fault = f"it was not done after {most_seconds:.0f} seconds; is there a loop without an end?"
    else:
        code = process.returncode
        fault = f"Python ended in the middle of it ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
        fault += "; is there enough memory?" if code == -9 else ""  # so Linux ends a process that takes too much
        fault += f"; it said last: {last_line[0]}" if last_line else ""
    return [*outcomes, Outcome(name, fault)]


@contextmanager
def _process(command: list[str], last_line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, which ends with all that it has started.

    What it prints goes to stderr, as a report on stdout is JSON, and the last line of it into `last_line`.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"},
        start_new_session=True,
    )
    assert process.stdout is not None
    thread = Thread(target=_pass_on, args=(process.stdout, last_line), daemon=True)
    thread.start()
    try:
        yield process
    finally:
        if sys.platform != "win32":
            with suppress(OSError):  # there is nobody left
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        thread.join(timeout=5)  # a process that has left the session may hold the pipe open


def _pass_on(output: IO[str], last_line: list[str]) -> None:
    """Show what is printed, as it comes, and keep the last line that is not empty."""
    n_shown = 0
    with output:
        while line := output.readline(MOST_PRINTED):
            if sys.stderr is not None and n_shown < MOST_PRINTED:
                with suppress(OSError, ValueError):  # nobody listens any more
                    print(line[: MOST_PRINTED - n_shown], end="", file=sys.stderr, flush=True)
            n_shown += len(line)
            last_line[:] = [one_line(line.strip())] if line.strip() else last_line


def _ends(process: subprocess.Popen[str], log: BinaryIO, lesson: Lesson, most_seconds: float) -> bool:
    """Whether the checks end before one exercise has taken too long. Each outcome starts the clock anew.

    An empty first line of the log means that all is imported, which takes longer on a busy machine.
    """
    size, n_done, since = 0, 0, time.monotonic()
    while process.poll() is None and n_done < len(lesson.exercises):
        if (new_size := log.seek(0, os.SEEK_END)) != size:
            n_logged = len(_read_outcomes(log, lesson))
            if not size or n_logged > n_done:
                since = time.monotonic()
            size, n_done = new_size, n_logged
        if time.monotonic() - since > (most_seconds if size else 5 * MOST_SECONDS):
            return False
        time.sleep(0.02)
    return True


def _read_outcomes(log: BinaryIO, lesson: Lesson) -> list[Outcome]:
    """The outcomes in a log, as far as exercises follow in their order: a student's file may write there, too."""
    outcomes: list[Outcome] = []
    names = [exercise.name for exercise in lesson.exercises]
    log.seek(0)
    for line in log.read(MOST_LOGGED).splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match row:
            case [str(name), str() | None as fault, bool(is_written)] if [name] == names[len(outcomes) :][:1]:
                outcomes.append(Outcome(name, fault, is_written))
                if fault is not None:
                    break
    return outcomes


def outcomes(lesson: Lesson, file: Path, checks: Mapping[str, Check]) -> Iterator[Outcome]:
    """Check a file in this process: the outcome of each exercise up to the first that is not right."""
    try:
        module = load_module(file, lesson.module)
    except BaseException as error:
        yield Outcome(lesson.exercises[0].name, f"{file.name} cannot be run: {_in_short(error, file)}")
        return
    for exercise in lesson.exercises:
        outcome = _outcome(lesson, exercise.name, module, file, checks[exercise.name])
        yield outcome
        if outcome.fault:
            return


def _outcome(lesson: Lesson, name: str, module: ModuleType, file: Path, check: Check) -> Outcome:
    if name not in vars(module):
        return Outcome(name, f"{file.name} has no {name} any more; `pellucid learn --reset {lesson.number}` keeps a "
                             "copy of your file and starts a new one")  # fmt: skip
    try:
        check(module)
    except Wrong as wrong:
        return Outcome(name, str(wrong))
    except NotImplementedError as error:
        is_this_one = str(error) == f"lesson {lesson.number}: {name}"
        return Outcome(name, "not written yet" if is_this_one else f"it needs {error}", is_written=not is_this_one)
    except BaseException as error:  # Ctrl-C reaches only the parent, which then ends this process
        return Outcome(name, f"it raised {_in_short(error, file)}")
    return Outcome(name)


def _in_short(error: BaseException, file: Path) -> str:
    """An error's class, the last line of the student's files that it passed, and its first line."""
    try:
        message = str(error).partition("\n")[0]
    except BaseException:  # its own __str__ may fail
        message = ""
    passed = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        passed, message = [(error.filename, error.lineno)], error.msg
    theirs = [(Path(name), line) for name, line in passed if Path(name).parent == file.parent]
    where = f" in line {theirs[-1][1]}" if theirs else ""
    other = f" of {theirs[-1][0].name}" if theirs and theirs[-1][0] != file else ""
    return one_line(f"{type(error).__name__}{where}{other}: {message or 'without a message'}")


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


class Finished:
    """Finds the student's own files of other lessons when they are imported."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return spec_from_file_location(name, self.files[name]) if name in self.files else None


def main(number: str, file: str, log: str, *finished: str) -> None:
    sys.path[:0] = [str(LESSONS), str(LESSONS / "exercises")]
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, Finished(dict(each.split("=", 1) for each in finished)))
    lesson = next(lesson for lesson in all_lessons() if lesson.number == int(number))
    this_process, to_line = os.getpid(), json.dumps
    with open(log, "a", encoding="utf-8", buffering=1) as lines:  # each line is written at once
        checked = _checked(lesson, Path(file))
        lines.write("\n")
        for outcome in checked:
            if os.getpid() != this_process:  # the student's file has forked, and this is the copy
                os._exit(0)
            lines.write(to_line(astuple(outcome)) + "\n")


def _checked(lesson: Lesson, file: Path) -> Iterator[Outcome]:
    """The outcomes of a file. The checks themselves may import a finished file that can no longer be run."""
    try:
        checks = checks_of(lesson)
    except BaseException as error:
        return iter([Outcome(lesson.exercises[0].name, f"it cannot be checked: {_in_short(error, file)}")])
    return outcomes(lesson, file, checks)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Run the checks of a lesson on a student's file, whatever that file does.

`attempt` starts a process of its own, so an endless loop, a full memory or `sys.exit()` costs one sentence, not the
command. The process checks one exercise after the other, each with ours in place of all that is not right, so none
waits for another. It is no judge of honesty: the student's file runs in the same Python as the checks, and can change
them and their log.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import MappingProxyType, ModuleType
from typing import IO, BinaryIO

from pellucid.course.checks import Wrong
from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from pellucid.course.own import Own, OwnFirst, own_first
from pellucid.errors import one_line
from pellucid.runtime.processes import command_of

MOST_SECONDS = 60.0  # for one exercise
MOST_PRINTED = 100_000  # characters that are shown of what a student's file prints
MOST_LOGGED = 1 << 16  # bytes that are read of the log: far more than the checks write
BLAME = re.compile(r"it is right with our (\w+), but not with yours \((lesson_\d\d)\.py, line \d+\): ")
Check = Callable[[ModuleType], None]


@dataclass(frozen=True)
class Outcome:
    """One exercise after its check. A fault is a sentence; None means that it is right.

    After one that `is_last`, no other can be checked: the file cannot be run.
    """

    exercise: str
    fault: str | None = None
    is_written: bool = True
    is_last: bool = False


def attempt(
    lesson: Lesson,
    folder: Path,
    done: Mapping[str, Collection[str]],
    asked: Sequence[str],
    most_seconds: float = MOST_SECONDS,
) -> list[Outcome]:
    """The outcomes of the exercises that are asked for, in a student's folder.

    `done` names what was right when it was last checked: {"lesson_01": ["push_product"]}. The rest is ours meanwhile.
    """
    outcomes: list[Outcome] = []
    n_told = 0  # by processes that came to an end of a check
    while left := asked[len(outcomes) :]:
        known = dict.fromkeys(done.get(lesson.module, []), True)
        known |= {outcome.exercise: outcome.fault is None for outcome in outcomes}
        right = [each.name for each in lesson.exercises if known.get(each.name)]
        told, end = _outcomes_of_a_process(lesson, folder, {**done, lesson.module: right}, left, most_seconds)
        outcomes += told
        if end is None:
            break
        outcomes.append(Outcome(left[len(told)], end))
        n_told += len(told)
        if not n_told and len(outcomes) > 1:  # the second ends as the first did: it may be the file itself
            break
    return outcomes


def _outcomes_of_a_process(
    lesson: Lesson, folder: Path, done: Mapping[str, Collection[str]], asked: Sequence[str], most_seconds: float
) -> tuple[list[Outcome], str | None]:
    """The outcomes as far as one process comes, and why it came no further."""
    last_line: list[str] = []  # of what the process prints; empty if that is nothing
    with tempfile.TemporaryDirectory() as log_folder, open(Path(log_folder) / "outcomes.jsonl", "w+b") as log:
        notes = json.dumps({module: list(names) for module, names in done.items()})
        command = command_of("pellucid.course.attempt", str(lesson.number), str(folder), log.name, notes, *asked)
        with _process(command, last_line) as process:
            is_late = not _ends(process, log, asked, most_seconds)
        outcomes = _read_outcomes(log, asked)
    if len(outcomes) == len(asked) or (outcomes and outcomes[-1].is_last):
        return outcomes, None
    if is_late:
        return outcomes, f"it was not done after {most_seconds:.0f} seconds; is there a loop without an end?"
    code = process.returncode
    end = f"Python ended in the middle of it ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
    end += "; is there enough memory?" if code == -9 else ""  # so Linux ends a process that takes too much
    return outcomes, end + (f"; it said last: {last_line[0]}" if last_line else "")


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


def _ends(process: subprocess.Popen[str], log: BinaryIO, asked: Sequence[str], most_seconds: float) -> bool:
    """Whether the checks end before one exercise has taken too long. Each outcome starts the clock anew.

    An empty first line of the log means that all is imported, which takes longer on a busy machine.
    """
    size, n_done, since = 0, 0, time.monotonic()
    while process.poll() is None and n_done < len(asked):
        if (new_size := log.seek(0, os.SEEK_END)) != size:
            n_logged = len(_read_outcomes(log, asked))
            if not size or n_logged > n_done:
                since = time.monotonic()
            size, n_done = new_size, n_logged
        if time.monotonic() - since > (most_seconds if size else 5 * MOST_SECONDS):
            return False
        time.sleep(0.02)
    return True


def _read_outcomes(log: BinaryIO, asked: Sequence[str]) -> list[Outcome]:
    """The outcomes in a log, as far as exercises follow in their order: a student's file may write there, too."""
    outcomes: list[Outcome] = []
    n = 0
    log.seek(0)
    for line in log.read(MOST_LOGGED).splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match row:
            case [str(name), str() | None as fault, bool(is_written), bool(is_last)] if name in asked[n : n + 1]:
                outcomes.append(Outcome(name, fault, is_written, is_last))
                n += 1
                if is_last:
                    break
    return outcomes


def outcomes(
    lesson: Lesson,
    file: Path,
    checks: Mapping[str, Check],
    asked: Sequence[str] = (),
    done: Collection[str] = (),
    earlier: Mapping[str, Own] = MappingProxyType({}),
) -> Iterator[Outcome]:
    """Check a file in this process: the outcome of each exercise, or of those that are asked for.

    Those that are wrong, or neither checked nor `done` yet, are ours while another is checked. `earlier` holds the
    student's other lessons.
    """
    names = asked or [exercise.name for exercise in lesson.exercises]
    right = set(done)
    if other := _lesson_in(file, lesson):
        what = f"{file.name} has the exercises of today's lesson {other.number}, as lessons have new numbers"
        fix = "copy what you have into the files that `pellucid learn --new DIR` writes"
        yield Outcome(names[0], f"{what}; {fix}", is_last=True)
        return
    try:
        own = Own(lesson, load_module(file, lesson.module))
    except BaseException as error:
        yield Outcome(names[0], f"{file.name} cannot be run: {in_short(error, file)}", is_last=True)
        return
    for name in names:
        own.use(right | {name})
        outcome = _outcome(own, name, file, checks[name])
        if outcome.fault and outcome.is_written:
            outcome = _blamed(outcome, own, earlier, file, checks[name])
        right = right - {name} if outcome.fault else right | {name}
        yield outcome


def _lesson_in(file: Path, lesson: Lesson) -> Lesson | None:
    """The lesson whose exercises are in a file instead of this lesson's: a folder may be older than today's numbers."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    defined = set(re.findall(r"^def (\w+)\(", text, re.MULTILINE))

    def share(of: Lesson) -> float:
        return sum(exercise.name in defined for exercise in of.exercises) / max(1, len(of.exercises))

    if share(lesson) > 0.5:
        return None
    likely = max(all_lessons(), key=share)
    return likely if share(likely) > 0.5 else None


def _outcome(own: Own, name: str, file: Path, check: Check) -> Outcome:
    if name not in own.theirs:
        new = f"`pellucid learn --reset {own.lesson.number}` keeps a copy of your file and starts a new one"
        return Outcome(name, f"{file.name} has no {name} any more; {new}")
    try:
        check(own.module)
    except Wrong as wrong:
        return Outcome(name, str(wrong))
    except BaseException as error:  # Ctrl-C reaches only the parent, which then ends this process
        if isinstance(error, NotImplementedError) and re.fullmatch(rf"lesson \d+: {name}", str(error)):
            return Outcome(name, "not written yet", is_written=False)
        return Outcome(name, f"it raised {in_short(error, file)}")
    return Outcome(name)


def _blamed(outcome: Outcome, own: Own, earlier: Mapping[str, Own], file: Path, check: Check) -> Outcome:
    """The outcome with the fault where it is: if all is right with ours in place of the student's other functions, they
    come back one by one, and the first with which the check fails is to blame.
    """
    name = outcome.exercise
    before = [(each, each.used) for each in (*earlier.values(), own)]
    for each, _ in before:
        each.use([name] if each is own else [])
    others = [(each, other) for each, used in before for other in used if other not in each.used]
    if others and _outcome(own, name, file, check).fault is None:
        for each, other in others:
            each.use([*each.used, other])
            if fault := _outcome(own, name, file, check).fault:
                line = getattr(getattr(each.theirs[other], "__code__", None), "co_firstlineno", 1)
                theirs = f"yours ({each.lesson.module}.py, line {line})"
                outcome = Outcome(name, f"it is right with our {other}, but not with {theirs}: {fault}")
                break
    for each, used in before:
        each.use(used)
    return outcome


def in_short(error: BaseException, file: Path) -> str:
    """An error's class, the last line that it passed in each of the student's files, or in ours, and its first line."""
    ours = ""
    try:
        message = str(error).partition("\n")[0]
    except BaseException:  # its own __str__ may fail
        message = ""
    passed = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        passed, message = [(error.filename, error.lineno)], error.msg
    lines: dict[str, int] = {}  # the last one of each file, the innermost first
    for name, line in reversed(passed):
        if Path(name).parent == file.parent:
            lines.setdefault("" if Path(name) == file else f" of {Path(name).name}", line or 1)
        elif Path(name).parent == LESSONS / "exercises" and not lines:
            ours = f" in line {line} of our {Path(name).name}"
    where = " in " + ", called in ".join(f"line {line}{of}" for of, line in lines.items()) if lines else ours
    return one_line(f"{type(error).__name__}{where}: {message or 'without a message'}")


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


def main(number: str, folder: str, log: str, done: str, *asked: str) -> None:
    lesson = next(lesson for lesson in all_lessons() if lesson.number == int(number))
    right = json.loads(done)
    before = right.pop(lesson.module, [])  # its own checks import our module
    finder = own_first(Path(folder), right)
    this_process, to_line = os.getpid(), json.dumps
    with open(log, "a", encoding="utf-8", buffering=1) as lines:  # each line is written at once
        checked = _checked(lesson, finder, asked, before)
        lines.write("\n")
        for outcome in checked:
            if os.getpid() != this_process:  # the student's file has forked, and this is the copy
                os._exit(0)
            lines.write(to_line(astuple(outcome)) + "\n")


def _checked(lesson: Lesson, finder: OwnFirst, asked: Sequence[str], done: Collection[str]) -> Iterator[Outcome]:
    """The outcomes of a file. The checks themselves may import a finished file that can no longer be run."""
    file = finder.folder / f"{lesson.module}.py"
    try:
        checks = checks_of(lesson)
    except BaseException as error:
        return iter([Outcome(asked[0], f"it cannot be checked: {in_short(error, file)}", is_last=True)])
    return outcomes(lesson, file, checks, asked, done, finder.loaded)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Checks a student's files again, with other random instances than the student has seen.

A student's file is a program of somebody else's. It gets limits of memory, CPU time and size of files. Linux offers
more, where users may make namespaces: no network, your files read-only, your processes out of sight, and a folder in
memory, gone afterwards, for all that it writes. `protection()` says what there is. It can still read what you can read,
and fool the checks, which run in the same Python as the file.
"""

import ast
import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pellucid.course.checks import SEED
from pellucid.course.exercises import Lesson, all_lessons
from pellucid.runtime.processes import command_of

LARGEST_FILE, LARGEST_FOLDER = 16 << 20, 256 << 20  # bytes that a student's program can write
MOST_PROCESSES = 4096  # with yours, threads counted: against one that multiplies; root has no such limit
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net"]
FILES = ["--mount", "--pid", "--fork", "--kill-child"]
PROTECTIONS = {  # the strongest first: its name, and the command that comes before ours
    "no network, your files read-only, your processes out of sight": [*NAMESPACES, *FILES, "--mount-proc"],
    "no network, your files read-only": [*NAMESPACES, *FILES],
    "no network": NAMESPACES,
    "limits alone": [],
}
READ_ONLY, RECURSIVE, THIS_FOLDER, MOUNT_SETATTR, DROP_FROM_BOUND = 1, 0x8000, -100, 442, 24  # of Linux


@cache
def protection() -> str:
    """The strongest protection that works on this system."""
    return next((name for name in PROTECTIONS if _works(name)), "none")


def _works(name: str) -> bool:
    with tempfile.TemporaryDirectory() as work:
        try:
            return subprocess.run(_confined(name, work, 8.0, 1.0, [], ["true"]), capture_output=True).returncode == 0
        except OSError:  # there is no `unshare`
            return False


def _confined(name: str, work: str, gib: float, minutes: float, files: Iterable[str], command: list[str]) -> list[str]:
    """The command that limits itself, copies the files into work/my_lessons, and then runs `command`."""
    settings = json.dumps([work, "read-only" in name, int(gib * 2**30), int(minutes * 60), list(files), command])
    return [*PROTECTIONS.get(name, []), sys.executable, __file__, settings]


def report_of(files: list[Path], seed: int, gib: float = 8.0, minutes: float = 15.0) -> list[dict[str, Any]]:
    """The lessons of the report that `pellucid learn --report` makes of these files, checked with this seed."""
    with tempfile.TemporaryDirectory() as work:
        learn = command_of("pellucid", "learn", "--report", "--folder", f"{work}/my_lessons")
        command = _confined(protection(), work, gib, minutes, [str(file.resolve()) for file in files], learn)
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, SEED: str(seed), "TMPDIR": work, "HOME": work}
        try:
            told = subprocess.run(
                command, env=environment, timeout=120 * minutes, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            return list(json.loads(told.stdout)["lessons"])
        except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):  # it was ended by a limit
            return []


def submissions_in(folder: Path) -> dict[str, list[Path]]:
    """The lesson files of each student: of two for one lesson, the newer. Each folder in `folder` is a student's."""
    found: dict[str, dict[str, Path]] = {}
    modules = {lesson.module for lesson in all_lessons()}
    files = [file for file in folder.glob("*/**/lesson_??.py") if file.stem in modules and file.is_file()]
    for file in sorted(files, key=lambda path: path.stat().st_mtime):
        found.setdefault(file.relative_to(folder).parts[0], {})[file.name] = file
    return {student: list(files.values()) for student, files in sorted(found.items())}


def unusual_imports(lesson: Lesson, file: Path) -> str:
    """Modules that a file imports and ours does not: a file that changes its checks has to import something."""
    try:
        theirs = _imports(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two if it is nested too deeply
        return ""
    return " ".join(sorted(theirs - _imports(lesson.solutions.read_bytes())))


def _imports(text: bytes) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}


def points(files: list[Path], seeds: Iterable[int], **limits: float) -> list[dict[str, Any]]:
    """A row for each exercise of the lessons that a student handed in: its stars, if it is right with every seed."""
    reports = [{row["lesson"]: row for row in report_of(files, seed, **limits)} for seed in seeds]
    by_name = {file.stem: file for file in files}
    rows = []
    for lesson in (lesson for lesson in all_lessons() if lesson.module in by_name):
        for exercise in lesson.exercises:
            name, stars = exercise.name, exercise.difficulty
            checked = [report.get(lesson.title, {"done": [], "faults": {}}) for report in reports]
            faults = [row["faults"].get(name, "not checked") for row in checked if name not in row["done"]]
            row = {"lesson": lesson.number, "exercise": name, "optional": "yes" if exercise.is_optional else ""}
            row |= {"points": 0 if faults else stars, "of": stars, "fault": "".join(faults[:1])}
            rows.append(row | {"unusual_imports": unusual_imports(lesson, by_name[lesson.module])})
    return rows


def main(settings: str) -> None:
    """Inside: limits first, then a file system that cannot be changed, then the command in place of this process."""
    work, is_read_only, n_bytes, n_seconds, files, command = json.loads(settings)
    if sys.platform != "win32":
        import resource

        limits = {"RLIMIT_AS": n_bytes, "RLIMIT_CPU": n_seconds, "RLIMIT_FSIZE": LARGEST_FILE, "RLIMIT_CORE": 0}
        limits["RLIMIT_NPROC"] = MOST_PROCESSES
        for name, most in limits.items():
            with suppress(OSError, ValueError):  # macOS refuses some
                resource.setrlimit(getattr(resource, name), (most, most))
    if is_read_only:
        libc = ctypes.CDLL(None)
        flags = struct.pack("QQQQ", READ_ONLY, 0, 0, 0)
        size = f"size={LARGEST_FOLDER}".encode()
        if libc.syscall(MOUNT_SETATTR, THIS_FOLDER, b"/", RECURSIVE, flags, len(flags)):
            sys.exit("files cannot be made read-only")
        if libc.mount(b"tmpfs", work.encode(), b"tmpfs", 0, size):
            sys.exit("no folder in memory")
        for capability in range(64):  # or it could make them writable again
            libc.prctl(DROP_FROM_BOUND, capability, 0, 0, 0)
    os.chdir(work)
    os.mkdir("my_lessons")
    for file in files:
        shutil.copy(file, "my_lessons")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1])

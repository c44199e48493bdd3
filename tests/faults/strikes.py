"""Faults of a process of Pellucid, and their moments. Called in that process, before the command starts."""

import ctypes
import errno
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from pellucid import failpoints


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forked(fault: Callable[[], None] | None = None) -> None:
    """The helpers come from the server that has imported PyTorch, as their run does: a fresh one takes seconds."""
    from pellucid.runtime import distributed  # PyTorch: other strikes come before it is imported

    real = distributed.start_processes

    def start(work: Callable[..., None], arguments: tuple[object, ...], **named: object) -> object:
        ours = [Connection(os.dup(number)) for number in (1, 2)]
        return real(writing_to, (ours, work, *arguments), **{**named, "start_method": "forkserver"})

    distributed.start_processes = start
    if fault:
        fault()


def writing_to(index: int, streams: list[Connection], work: Callable[..., None], *arguments: object) -> None:
    """A helper's work, printing where its run prints, as if that had started it."""
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    work(index, *arguments)


def kill_group() -> None:
    """This process and those that it started, which must be a group of their own."""
    os.killpg(0, signal.SIGKILL)


def soon(action: Callable[[], None], after_seconds: float) -> None:
    """A kill that falls somewhere into what is done next."""
    threading.Timer(after_seconds, action).start()


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt_twice() -> None:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def input_output_error() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def at_point(action: Callable[[], None], point: str, nth: int = 1) -> None:
    """The nth time that a failpoint of this name is reached; any name counts for `*`."""
    arrivals = 0

    def reached(name: str) -> None:
        nonlocal arrivals
        if point in (name, "*"):
            arrivals += 1
            if arrivals == nth:
                action()

    failpoints.reached = reached


def record_points(file: Path) -> None:
    """No strike: writes down the names of all failpoints that are reached, in order."""
    stream = file.open("w", buffering=1)
    failpoints.reached = lambda name: print(name, file=stream)


def at_call(action: Callable[[], None], module: str, function: str) -> None:
    """When a function of Pellucid is called for the first time."""
    owner = import_module(module)
    original = getattr(owner, function)

    def struck(*arguments: object, **named: object) -> object:
        setattr(owner, function, original)
        action()
        return original(*arguments, **named)

    setattr(owner, function, struck)


def at_import(action: Callable[[], None], module: str) -> None:
    """When a module is about to be imported."""

    class Finder:
        @staticmethod
        def find_spec(name: str, *_rest: object) -> None:
            if name == module:
                sys.meta_path.remove(Finder)
                action()

    sys.meta_path.insert(0, Finder)


def clock_jumps() -> None:
    """From now on the time of day lies ten years before and after the truth, in turn."""
    real, sign = time.time, 1

    def jumping() -> float:
        nonlocal sign
        sign = -sign
        return real() + sign * 10 * 365.25 * 86_400

    time.time = jumping
    tqdm = import_module("tqdm.std")
    tqdm.time = jumping


def small_files_only(n_bytes: int) -> None:
    """No file may grow beyond this (RLIMIT_FSIZE)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def little_memory(n_bytes: int) -> None:
    """The process may take this much address space more than it has (RLIMIT_AS)."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def wait_for(file: Path) -> None:
    """Starts when the file is there: many processes at the same moment."""
    while not file.exists():
        time.sleep(0.0005)


def killed_at(point: str, nth: int = 1) -> Callable[[], None]:
    return partial(at_point, kill, point, nth)


def full_then_roomy(place: Path, n_bytes: int) -> None:
    """The command runs twice on the disk `place`/disk: of `n_bytes`, and once more, with --resume, of ten megabytes.

    What the first left is copied to `place`/full, and what the second left to `place`/roomy, as nobody else sees it.
    """
    in_own_namespace()
    mount(place / "disk", n_bytes)
    if (first := os.fork()) == 0:
        os.dup2(os.open(place / "first-errors", os.O_WRONLY | os.O_CREAT), 2)
        return
    exit_code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    (place / "first-exit-code").write_text(str(exit_code))
    shutil.copytree(place / "disk", place / "full")
    mount(place / "disk", 10_000_000, REMOUNT)
    if (second := os.fork()) == 0:
        sys.argv.append("--resume")
        return
    exit_code = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
    shutil.copytree(place / "disk", place / "roomy")
    os._exit(exit_code)


def read_only(disk: Path) -> None:
    """A disk that nobody may write to."""
    in_own_namespace()
    mount(disk, 10_000, READ_ONLY)


def in_own_namespace() -> None:
    """Where an ordinary user may mount: Linux calls him root there."""
    user, group = os.getuid(), os.getgid()
    clone_newuser, clone_newns = 0x10000000, 0x00020000
    check(ctypes.CDLL(None, use_errno=True).unshare(clone_newuser | clone_newns))
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{file}").write_text(text)


READ_ONLY, REMOUNT = 1, 32


def mount(folder: Path, n_bytes: int, flags: int = 0) -> None:
    """A disk in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.mount(b"tmpfs", bytes(folder), b"tmpfs", ctypes.c_ulong(flags), f"size={n_bytes}".encode()))


def check(failed: int) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def stay() -> None:
    """Does not go on, until it is killed."""
    while True:
        time.sleep(1)

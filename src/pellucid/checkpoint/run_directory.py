"""A run's folder: one process at a time, its checkpoints by step, and which of them to keep."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

from filelock import FileLock, Timeout

from pellucid.checkpoint.step_directory import STEP_NAME, SeenLog, State, read_state, step_name
from pellucid.config.run import run_meant_by
from pellucid.config.yaml_source import shortened
from pellucid.errors import CheckpointError, InputOutputError, RunInUseError
from pellucid.files import discard, sha256

_log = logging.getLogger(__name__)

LOCK = ".lock"
SECONDS_TO_WAIT = 0.5  # for the lock: who asks only whether it is taken (`is_locked`) holds it much shorter
SNAPSHOTS = "snapshots"  # the folder in a run's folder that holds weights alone (`snapshots.py`)


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Creates the folder if needed, locks it for this process, and removes what a killed save left behind.

    The lock is the system's, so it ends with the process, however it ends. Raises RunInUseError.
    """
    lock = FileLock(run_dir / LOCK, timeout=SECONDS_TO_WAIT)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=SECONDS_TO_WAIT / 10)
    except Timeout:
        fix = "wait for it to end, or choose another --run-dir"
        raise RunInUseError(str(run_dir), "another process trains in this folder", fix) from None
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputOutputError(str(run_dir), what, "choose another folder with --run-dir") from error
    try:
        for folder, name in product((run_dir, run_dir / SNAPSHOTS), (".tmp-*", ".trash-*")):
            for leftover in folder.glob(name):
                with suppress(OSError):
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        yield
    finally:
        lock.release()


def is_locked(run_dir: Path) -> bool:
    """Whether a process trains there. The only way to find out is to take the lock, for an instant."""
    if not (run_dir / LOCK).exists():
        return False
    lock = FileLock(run_dir / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # it may not be written, as by whoever trains there
        return False
    lock.release()
    return False


def steps_in(run_dir: Path) -> list[int]:
    """The steps that have a folder, in ascending order. Only reading one tells whether it is intact."""
    matches = [STEP_NAME.fullmatch(path.name) for path in run_dir.iterdir()] if run_dir.is_dir() else []
    return sorted(int(match[1]) for match in matches if match)


def step_directories(run_dir: Path) -> list[Path]:
    """The folders of its checkpoints, then those of its snapshots, each by step."""
    return [folder / step_name(step) for folder in (run_dir, run_dir / SNAPSHOTS) for step in steps_in(folder)]


def run_of(step_directory: Path) -> Path:
    """The folder of the run that a checkpoint or a snapshot belongs to."""
    folder = step_directory.parent
    return folder.parent if folder.name == SNAPSHOTS else folder


def whole_checkpoints(run_dir: Path) -> Iterator[State]:
    """The states of the checkpoints that pass every check, newest first; a warning for each that does not."""
    for step in reversed(steps_in(run_dir)):
        try:
            yield read_state(run_dir / step_name(step))
        except CheckpointError as error:
            _log.warning("%s", error)


def seen_log(file: Path) -> SeenLog:
    """What a checkpoint that is saved now knows of a log."""
    n_bytes = file.stat().st_size
    return SeenLog(bytes=n_bytes, sha256=sha256(file, n_bytes))


def is_as_seen(file: Path, seen: SeenLog) -> bool:
    """Whether a log still begins with all that a checkpoint saw of it."""
    return file.exists() and file.stat().st_size >= seen.bytes and sha256(file, seen.bytes) == seen.sha256


def require_logs(run_dir: Path, state: State) -> None:
    """Raises CheckpointError unless the logs begin with all that the checkpoint of this state saw of them.

    A step directory that was copied without its run has none to miss.
    """
    if not (run_dir / "config.yaml").exists():
        return
    changed = [name for name, seen in state.logs.items() if not is_as_seen(run_dir / name, seen)]
    if changed:
        what = f"{' and '.join(changed)}: changed since {step_name(state.step)} was saved"
        fix = "`pellucid train --resume` keeps a copy, and goes on with what can be read"
        raise CheckpointError(str(run_dir), what, fix)


def keep_last_and_best(run_dir: Path, keep_last: int, before_decay: int | None = None) -> None:
    """Deletes all checkpoints except the newest `keep_last` intact ones, the best intact one, and `before_decay`.

    If one can't be deleted, that is only a warning: the save before it succeeded, and training continues.
    """
    whole = list(whole_checkpoints(run_dir))
    kept = {state.step for state in whole[:keep_last]} | {before_decay}
    if whole:
        kept.add(_best(whole).step)
    for step in steps_in(run_dir):
        if step not in kept:
            try:
                discard(run_dir / step_name(step))
            except OSError as error:
                _log.warning("%s: not deleted: %s", run_dir / step_name(step), error.strerror)


def find_step_directory(run: Path, which: str) -> Path:
    """The step directory that RUN and `--checkpoint best|latest|STEP` name; RUN may be a step directory itself.

    The best has the lowest validation loss found while training; where nothing was evaluated it is the newest. A STEP
    of which there is no checkpoint may be that of a snapshot. Raises CheckpointError if there is none.
    """
    if STEP_NAME.fullmatch(run.name) and run.is_dir():
        return run
    steps, by_step = steps_in(run), {int(path.name[5:]): path for path in reversed(step_directories(run))}
    if which.isdecimal() and int(which) in by_step:
        return by_step[int(which)]
    known = ", ".join(map(str, sorted(by_step)))
    if not steps:
        if known:
            raise CheckpointError(str(run), "no checkpoint here", f"it has snapshots: --checkpoint {known}")
        raise no_run(run)
    if which == "latest":
        return run / step_name(steps[-1])
    if which == "best":
        whole = list(whole_checkpoints(run))
        if not whole:
            raise none_is_whole(run)
        best = _best(whole)
        if best.val_loss is not None and best.step < steps[-1]:
            _log.info("step %s, the best of %s; --checkpoint latest for the newest", f"{best.step:,}", run)
        return run / step_name(best.step)
    raise CheckpointError(str(run), f"no checkpoint {which!r}", f"use best, latest or a step: {known}")


def no_run(run: Path) -> CheckpointError:
    """What to say where a run was expected: which one may be meant."""
    if not run.is_dir():
        meant = run.parent if run.is_file() and (steps_in(run.parent) or STEP_NAME.fullmatch(run.parent.name)) else None
        meant = meant or run_meant_by(run)
        fix = f"did you mean {meant}?" if meant else "name the folder that `pellucid train` wrote"
        return CheckpointError(str(run), "no such run", fix)
    inside = ", ".join(str(path) for path in sorted(run.iterdir()) if steps_in(path))
    fix = f"runs in it: {shortened(inside, 200)}" if inside else "name the folder that `pellucid train` wrote"
    return CheckpointError(str(run), "no checkpoint here", fix)


def none_is_whole(run: Path) -> CheckpointError:
    """What to say where every checkpoint is damaged: what is left to use."""
    for step in reversed(steps_in(run / SNAPSHOTS)):
        with suppress(CheckpointError):
            read_state(run / SNAPSHOTS / step_name(step))
            return CheckpointError(str(run), "no checkpoint is intact", use_snapshot(run / SNAPSHOTS / step_name(step)))
    return CheckpointError(str(run), "no checkpoint is intact", "train again with --overwrite")


def use_snapshot(snapshot: Path) -> str:
    """Weights alone: training cannot go on from them, but all else can."""
    return f"use {snapshot}, a whole snapshot, or begin another run with start_from={snapshot}"


def _best(states: list[State]) -> State:
    """The state with the lowest validation loss; if none was evaluated, the first, which is the newest."""
    evaluated = [state for state in states if state.val_loss is not None]
    return min(evaluated, key=lambda state: (state.val_loss, state.step), default=states[0])

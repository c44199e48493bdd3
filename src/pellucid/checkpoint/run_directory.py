"""A run's folder: its lock, its checkpoints by step, and which of them to keep."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pellucid.checkpoint.ownership import LOCK, is_own, sweep
from pellucid.checkpoint.step_directory import SNAPSHOTS, STEP_NAME, SeenLog, State, read_state, step_name
from pellucid.config.run import run_meant_by
from pellucid.config.shipped import DEMO
from pellucid.config.yaml_source import shortened
from pellucid.errors import CHECKPOINT, OVERWRITE, RUN_DIR, CheckpointError, Fix, InputOutputError, RunInUseError
from pellucid.files import discard, sha256

_log = logging.getLogger(__name__)

SECONDS_TO_WAIT = 0.5  # for the lock: `is_locked` holds it for much less
NAME_A_RUN = "name the folder that `pellucid train` wrote, or demo for the model that comes with Pellucid"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Inside, this process has the run's folder (created if needed) for itself; leftovers of killed saves are removed.

    The system frees the lock when the process ends, for whatever reason. Raises RunInUseError.
    """
    lock = FileLock(run_dir / LOCK, timeout=SECONDS_TO_WAIT)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=SECONDS_TO_WAIT / 10)
    except Timeout:
        fix = Fix("wait for it to end, or choose another {}", RUN_DIR)
        raise RunInUseError(str(run_dir), "another process trains in this folder", fix) from None
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputOutputError(str(run_dir), what, Fix("choose another folder with {}", RUN_DIR)) from error
    try:
        for folder in (run_dir, run_dir / SNAPSHOTS):
            sweep(folder)
        yield
    finally:
        lock.release()


def is_locked(run_dir: Path) -> bool:
    """Whether a process trains in this folder. The only way to find out is to take the lock, for an instant."""
    if not (run_dir / LOCK).exists():
        return False
    lock = FileLock(run_dir / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # not writable for us, so we cannot tell
        return False
    lock.release()
    return False


def steps_in(run_dir: Path) -> list[int]:
    """The steps that have a folder, in ascending order, whether intact or not."""
    matches = [STEP_NAME.fullmatch(path.name) for path in run_dir.iterdir()] if run_dir.is_dir() else []
    return sorted(int(match[1]) for match in matches if match)


def step_directories(run_dir: Path) -> list[Path]:
    """The folders of a run's checkpoints, then of its snapshots, each by step; a step directory has only itself."""
    if STEP_NAME.fullmatch(run_dir.name) and run_dir.is_dir():
        return [run_dir]
    return [folder / step_name(step) for folder in (run_dir, run_dir / SNAPSHOTS) for step in steps_in(folder)]


def run_of(step_directory: Path) -> Path:
    """The folder of the run that a checkpoint or a snapshot belongs to."""
    folder = step_directory.parent
    return folder.parent if folder.name == SNAPSHOTS else folder


def intact_checkpoints(run_dir: Path) -> Iterator[State]:
    """The states of the intact checkpoints, newest first; warns of each damaged one."""
    for step in reversed(steps_in(run_dir)):
        try:
            yield read_state(run_dir / step_name(step))
        except CheckpointError as error:
            _log.warning("%s", error)


def log_as_seen(file: Path) -> SeenLog:
    """The current length and hash of a log, for a checkpoint."""
    n_bytes = file.stat().st_size
    return SeenLog(bytes=n_bytes, sha256=sha256(file, n_bytes))


def is_log_unchanged(file: Path, seen: SeenLog) -> bool:
    """Whether a log still begins with the bytes that a checkpoint recorded."""
    return file.exists() and file.stat().st_size >= seen.bytes and sha256(file, seen.bytes) == seen.sha256


def require_logs(run_dir: Path, state: State) -> None:
    """Raise CheckpointError unless the logs still begin with the bytes that this checkpoint recorded.

    A step directory that was copied without its run needs no logs.
    """
    if not (run_dir / "config.yaml").exists():
        return
    changed = [name for name, seen in state.logs.items() if not is_log_unchanged(run_dir / name, seen)]
    if changed:
        what = f"{' and '.join(changed)}: changed since {step_name(state.step)} was saved"
        fix = "`pellucid train --resume` keeps a copy, and continues with its readable rows"
        raise CheckpointError(str(run_dir), what, fix)


def keep_last_and_best(run_dir: Path, keep_last: int, before_decay: int | None = None) -> None:
    """Delete all checkpoints except the newest `keep_last` intact ones, the best intact one, and `before_decay`.

    Failing to delete one is only a warning: saving succeeded, and training continues.
    """
    states = list(intact_checkpoints(run_dir))
    steps_to_keep = {state.step for state in states[:keep_last]} | {before_decay}
    if states:
        steps_to_keep.add(_best(states).step)
    for step in steps_in(run_dir):
        if step not in steps_to_keep and is_own(run_dir / step_name(step)):
            try:
                discard(run_dir / step_name(step))
            except OSError as error:
                _log.warning("%s: not deleted: %s", run_dir / step_name(step), error.strerror)


def find_step_directory(run: Path, which: str) -> Path:
    """The step directory that RUN and `--checkpoint best|latest|STEP` name; RUN may be a step directory itself.

    The best has the lowest validation loss in training; without evaluations it is the newest. A STEP without a
    checkpoint may name a snapshot. Raises CheckpointError if there is none.
    """
    if STEP_NAME.fullmatch(run.name) and run.is_dir():
        return run
    steps, by_step = steps_in(run), {int(path.name[5:]): path for path in reversed(step_directories(run))}
    if which.isdecimal() and int(which) in by_step:
        return by_step[int(which)]
    choices = ", ".join(map(str, sorted(by_step)))
    if not steps:
        if choices:
            raise CheckpointError(str(run), "no checkpoint here", Fix("it has snapshots: {} " + choices, CHECKPOINT))
        raise no_run(run)
    if which == "latest":
        return run / step_name(steps[-1])
    if which == "best":
        if not (states := list(intact_checkpoints(run))):
            raise no_intact_checkpoint(run)
        best = _best(states)
        if best.val_loss is not None and best.step < steps[-1]:
            _log.info("step %s, the best of %s; --checkpoint latest for the newest", f"{best.step:,}", run)
        return run / step_name(best.step)
    raise CheckpointError(str(run), f"no checkpoint {which!r}", f"use best, latest or a step: {choices}")


def no_run(run: Path) -> CheckpointError:
    """The error for a path that is not a run, with the run that may be meant."""
    if not run.is_dir():
        meant = run.parent if run.is_file() and (steps_in(run.parent) or STEP_NAME.fullmatch(run.parent.name)) else None
        meant = meant or run_meant_by(run)
        fix = f"did you mean {meant}?" if meant else NAME_A_RUN
        return CheckpointError(str(run), "no such run", fix)
    inside = ", ".join(str(path) for path in sorted(run.iterdir()) if steps_in(path))
    fix = f"runs in it: {shortened(inside, 200)}" if inside else NAME_A_RUN
    return CheckpointError(str(run), "no checkpoint here", fix)


def no_intact_checkpoint(run: Path) -> CheckpointError:
    """The error for a run whose checkpoints are all damaged, with a snapshot that can be used instead, if any."""
    for step in reversed(steps_in(run / SNAPSHOTS)):
        with suppress(CheckpointError):
            read_state(run / SNAPSHOTS / step_name(step))
            return CheckpointError(str(run), "no checkpoint is intact", use_snapshot(run / SNAPSHOTS / step_name(step)))
    return CheckpointError(str(run), "no checkpoint is intact", get_again(run))


def get_again(run: Path) -> str | Fix:
    """Advice for a run of which nothing can be used: train it again, but install the shipped one again."""
    return "install Pellucid again" if run == DEMO else Fix("train again with {}", OVERWRITE)


def use_snapshot(snapshot: Path) -> str:
    """Advice to use a snapshot: training cannot continue from one, but everything else works."""
    return f"use {snapshot}, an intact snapshot, or begin another run with start_from={snapshot}"


def _best(states: list[State]) -> State:
    """The state with the lowest validation loss; if none was evaluated, the first, which is the newest."""
    evaluated = [state for state in states if state.val_loss is not None]
    return min(evaluated, key=lambda state: (state.val_loss, state.step), default=states[0])

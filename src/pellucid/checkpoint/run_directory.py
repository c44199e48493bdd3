"""A run's folder: one process at a time, its checkpoints by step, and which of them to keep."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.checkpoint.step_directory import discard, step_name
from pellucid.errors import CheckpointError, InputOutputError, RunInUseError

_STEP_NAME = re.compile(r"step-(\d{8,})")


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Makes the folder if need be and holds it for this process alone; what a killed save left is swept away.

    The lock is the kernel's (flock), so it ends with the process, however that ends. Raises RunInUseError.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run_dir / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputOutputError(str(run_dir), what, "choose another folder with --run-dir") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mend = "wait for it to end, or choose another --run-dir"
            raise RunInUseError(str(run_dir), "another process trains in this folder", mend) from None
        for leftover in [*run_dir.glob(".tmp-*"), *run_dir.glob(".trash-*")]:
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def steps_in(run_dir: Path) -> list[int]:
    """The steps that have a folder, in ascending order; whether it is whole only `read_checkpoint` can tell."""
    matches = [_STEP_NAME.fullmatch(path.name) for path in run_dir.iterdir()] if run_dir.is_dir() else []
    return sorted(int(match[1]) for match in matches if match)


def best_step(run_dir: Path) -> int | None:
    """The step with the lowest validation loss among those that were evaluated."""
    losses = {step: loss for step in steps_in(run_dir) if (loss := _val_loss(run_dir, step)) is not None}
    return min(losses, key=lambda step: losses[step]) if losses else None


def keep_last_and_best(run_dir: Path, keep_last: int) -> None:
    """Deletes all checkpoints but the newest `keep_last` and the best one."""
    steps = steps_in(run_dir)
    kept = {*steps[-keep_last:], best_step(run_dir)}
    for step in steps:
        if step not in kept:
            discard(run_dir / step_name(step))


def find_step_directory(run: Path, which: str) -> Path:
    """The step directory that RUN and `--checkpoint latest|best|STEP` name; RUN may be a step directory itself.

    Raises CheckpointError if there is none.
    """
    if _STEP_NAME.fullmatch(run.name) and run.is_dir():
        return run
    steps = steps_in(run)
    if not steps:
        what = "no checkpoint here" if run.is_dir() else "no such run"
        raise CheckpointError(str(run), what, "name the folder that `pellucid train` wrote")
    if which == "latest":
        return run / step_name(steps[-1])
    known = ", ".join(str(step) for step in steps)
    if which == "best":
        step = best_step(run)
        if step is None:
            raise CheckpointError(str(run), "no checkpoint was evaluated", f"choose a step: {known}")
        return run / step_name(step)
    if not which.isdecimal() or int(which) not in steps:
        raise CheckpointError(str(run), f"no checkpoint {which!r}", f"use latest, best or a step: {known}")
    return run / step_name(int(which))


def _val_loss(run_dir: Path, step: int) -> float | None:
    try:
        loss = json.loads((run_dir / step_name(step) / "state.json").read_bytes()).get("val_loss")
    except (OSError, ValueError, AttributeError):
        return None
    return loss if isinstance(loss, float) else None

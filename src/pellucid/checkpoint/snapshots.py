"""Snapshots: the weights of a few steps between the first and the last, to look back at what was learned when.

    RUN/snapshots/step-00000010/   model.safetensors  state.json  config.yaml  tokenizer.json  manifest.json

They are written and checked as checkpoints are, and no later save deletes them. Training cannot go on from one, for it
has neither moments nor random generators. The weights are in the format that they are trained in, and not in half of
it: a snapshot's loss is then the loss that the log has for its step, and the last one equals the last checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pellucid.checkpoint.run_directory import SNAPSHOTS, steps_in
from pellucid.checkpoint.step_directory import Checkpoint, step_name, write_checkpoint
from pellucid.files import discard, fsync


def snapshot_steps(n_steps: int, count: int) -> tuple[int, ...]:
    """So many of the steps 0, 1, …, n_steps: both ends, 1, and others at equal ratios, as far as whole numbers allow.

    A model learns most at the beginning: the distance between 10 and 20 is as interesting as between 500 and 1,000.
    """
    if count <= 1:
        return (n_steps,) * count
    steps = [0]
    for n_left in range(count - 1, 0, -1):
        now = steps[-1]
        if now == n_steps:
            break
        ratio = (n_steps / max(now, 1)) ** (1 / n_left)
        steps.append(n_steps if n_left == 1 else max(now + 1, round(now * ratio)))
    return tuple(steps)


def write_snapshot(run_dir: Path, checkpoint: Checkpoint) -> None:
    """Keeps the weights of a checkpoint. Raises InputOutputError as `write_checkpoint` does."""
    folder = run_dir / SNAPSHOTS
    if not folder.is_dir():
        folder.mkdir()
        fsync(run_dir)
    write_checkpoint(folder, replace(checkpoint, optimizer={}, rng={}, is_snapshot=True))


def discard_snapshots_after(run_dir: Path, step: int) -> None:
    """Deletes those of later steps, which a run that resumes at `step` makes again."""
    for later in steps_in(run_dir / SNAPSHOTS):
        if later > step:
            discard(run_dir / SNAPSHOTS / step_name(later))

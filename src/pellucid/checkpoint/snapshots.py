"""Snapshots: the weights of a few steps between the first and the last, to see what was learned when.

    RUN/snapshots/step-00000010/   model.safetensors  state.json  config.yaml  tokenizer.json  manifest.json

They are written and checked like checkpoints, and no later save deletes them. Training cannot continue from one, as it
has neither moments nor random generators. The weights keep their full precision: so a snapshot's loss is the logged
loss of its step, and the last snapshot equals the last checkpoint.
"""

from dataclasses import replace
from pathlib import Path

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import SNAPSHOTS, Checkpoint, step_name, write_checkpoint
from pellucid.files import discard, fsync


def snapshot_steps(n_steps: int, count: int) -> tuple[int, ...]:
    """`count` steps from 0 to n_steps: both ends, 1, and others at about equal ratios.

    A model learns most at the beginning: steps 10 to 20 are as interesting as 500 to 1,000.
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
    """Write the weights of a checkpoint as a snapshot. Raises InputOutputError as `write_checkpoint` does."""
    folder = run_dir / SNAPSHOTS
    if not folder.is_dir():
        folder.mkdir()
        fsync(run_dir)
    write_checkpoint(folder, replace(checkpoint, optimizer={}, rng={}, is_snapshot=True))


def discard_snapshots_after(run_dir: Path, step: int) -> None:
    """Delete the snapshots of later steps, which a run that resumes at `step` makes again."""
    for later in steps_in(run_dir / SNAPSHOTS):
        if later > step:
            discard(run_dir / SNAPSHOTS / step_name(later))

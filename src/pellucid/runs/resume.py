"""Resuming: finds the newest intact checkpoint, and checks that config, data and reward are still the same."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pellucid.checkpoint.ownership import NOT_SAVED_YET
from pellucid.checkpoint.run_directory import no_intact_checkpoint, steps_in
from pellucid.checkpoint.step_directory import METRICS, SNAPSHOTS, Checkpoint, read_checkpoint, step_name
from pellucid.config.base import flat
from pellucid.config.run import RunConfig
from pellucid.config.training import WarmupStableDecayConfig
from pellucid.errors import (
    OVERWRITE,
    RESUME,
    RUN_DIR,
    START_OVER,
    START_OVER_OR_MOVE,
    CheckpointError,
    ConfigError,
    Fix,
)
from pellucid.files import discard
from pellucid.trained import config_of
from pellucid.training.schedules import build_schedule, common_steps

_log = logging.getLogger(__name__)

# A resumed run must compute what the uninterrupted one would have. These keys only decide what is reported and saved.
# A vocabulary's path does not matter either: its contents are compared (`require_same_data`).
OPERATIONAL = (
    *("name.", "tokenizer.path.", "train.log_every_steps.", "train.processes."),
    *("evaluation.", "sample.", "checkpoint.", "trackers."),
)


def require_no_run(run_dir: Path) -> None:
    """Raise ConfigError if the folder holds a run already, so that a forgotten option loses no training."""
    if steps_in(run_dir) or (run_dir / METRICS).exists():
        words = "add {} to continue it, {} to start over, or name=OTHER or {} for another folder"
        raise ConfigError(str(run_dir), "there is a run in this folder", Fix(words, RESUME, OVERWRITE, RUN_DIR))


def newest_intact_checkpoint(run_dir: Path, at_most: int | None = None) -> tuple[Checkpoint, Path] | None:
    """The newest intact checkpoint (up to step `at_most`) and its folder; warns of each damaged one.

    None if the run has not saved yet. Raises CheckpointError if all checkpoints are damaged or missing: starting
    silently from scratch would pass off a new run as the old one.
    """
    steps = [step for step in steps_in(run_dir) if at_most is None or step <= at_most]
    for step in reversed(steps):
        directory = run_dir / step_name(step)
        try:
            checkpoint = read_checkpoint(directory)
        except CheckpointError as error:
            _log.warning("%s", error)
            continue
        if checkpoint.is_snapshot:
            what = "a snapshot is the weights alone, and training cannot go on from it"
            fix = "resume the run that it is of, or name it in start_from to begin another"
            raise CheckpointError(str(directory), what, fix)
        return checkpoint, directory
    if steps:
        raise no_intact_checkpoint(run_dir)
    has_trained = (run_dir / METRICS).exists() or steps_in(run_dir / SNAPSHOTS)
    if has_trained and not (run_dir / NOT_SAVED_YET).exists():
        what = "there is the log of a run here, but none of its checkpoints"
        raise CheckpointError(str(run_dir), what, START_OVER_OR_MOVE.after("bring its newest step-… folder back"))
    return None


def checkpoint_for_steps(config: RunConfig, newest: tuple[Checkpoint, Path], run_dir: Path) -> tuple[Checkpoint, Path]:
    """The checkpoint from which a run can continue to another number of steps than it was planned for.

    Up to it all updates had the learning rate of the new plan, so the run ends as if it had been planned that way.
    Raises CheckpointError if there is none, or if more steps have been made.
    """
    checkpoint, directory = newest
    before, now = config_of(checkpoint, str(directory)).train.steps, config.train.steps
    if checkpoint.state.step > now:
        what = f"the run has made {checkpoint.state.step:,} steps, and train.steps is {now:,}"
        raise CheckpointError(str(directory), what, Fix("ask for more steps, or train in another {}", RUN_DIR))
    if before == now:
        return newest
    old, new = (build_schedule(config.schedule, steps) for steps in (before, now))
    most = common_steps(old, new, min(before, now))
    if checkpoint.state.step <= most:
        return newest
    earlier = newest_intact_checkpoint(run_dir, most) if any(step <= most for step in steps_in(run_dir)) else None
    if earlier is not None:
        return earlier
    if isinstance(config.schedule, WarmupStableDecayConfig):
        what = f"train.steps was {before:,}, is {now:,}: a run can go on from step {most:,} or before, and none is kept"
        fix = "set checkpoint.keep_last higher next time; now start a new run with start_from"
    else:
        what = f"train.steps was {before:,}, is {now:,}, and the {config.schedule.type} schedule depends on it"
        fix = f"start a new run from it: start_from={run_dir.as_posix()} and another name"
    raise CheckpointError(str(run_dir), what, fix)


def discard_later(run_dir: Path, step: int) -> None:
    """Delete the checkpoints after the step from which a run continues with a new plan, with a warning."""
    later = [later_step for later_step in steps_in(run_dir) if later_step > step]
    if later:
        why = "as the learning rate after it is now different; deleted: the checkpoints of"
        names = ", ".join(f"{later_step:,}" for later_step in later)
        _log.warning(f"%s: continues from step %s, {why} %s", run_dir, f"{step:,}", names)
    for later_step in later:
        discard(run_dir / step_name(later_step))


def require_same_run(config: RunConfig, checkpoint: Checkpoint, where: str) -> None:
    """Raise CheckpointError, listing the differences, if the checkpoint's config computes something else.

    The planned number of steps may differ: see `checkpoint_for_steps`.
    """
    saved = config_of(checkpoint, where)
    before, now = flat(saved.model_dump(mode="json")), flat(config.model_dump(mode="json"))
    keys = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    keys = [key for key in keys if key != "train.steps" and not f"{key}.".startswith(OPERATIONAL)]
    # A section of another type has other keys: the type alone is reported.
    replaced = tuple(key.removesuffix("type") for key in keys if key.endswith(".type"))
    keys = [key for key in keys if key.endswith(".type") or not key.startswith(replaced)]
    if keys:
        differences = [f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}" for key in keys]
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        fix = START_OVER_OR_MOVE.after("take these changes back")
        raise CheckpointError(where, f"the config has changed: {', '.join(differences[:3])}{more}", fix)


def require_same_data(fingerprint: str, tokenizer_json: str, checkpoint: Checkpoint, where: str) -> None:
    """Raise CheckpointError if the corpus or the vocabulary has changed since the checkpoint was written."""
    if checkpoint.state.data_fingerprint != fingerprint:
        what = f"the corpus has changed (fingerprint was {checkpoint.state.data_fingerprint}, is {fingerprint})"
        raise CheckpointError(where, what, START_OVER_OR_MOVE.after("bring the old text back"))
    if checkpoint.tokenizer_json != tokenizer_json:
        fix = START_OVER.after("delete the prepared data, so that it is made again")
        raise CheckpointError(where, "the tokenizer has changed since this was saved", fix)


def require_same_reward(digest: str | None, checkpoint: Checkpoint, where: str) -> None:
    """Raise CheckpointError if the reward model has changed since the checkpoint was written."""
    if checkpoint.state.reward_sha256 not in (None, digest):  # older checkpoints do not record it
        fix = START_OVER.after("bring its checkpoint back, name it as RUN@STEP if it is still there")
        what = "the model that judges or teaches, named in objective, has changed since this was saved"
        raise CheckpointError(where, what, fix)


def other_environment(now: Mapping[str, object], checkpoint: Checkpoint) -> str | None:
    """The changes of device, versions and so on since the checkpoint was written, which alter rounding; or None."""
    before = checkpoint.state.model_dump(include=set(now))
    changed = {name: value for name, value in now.items() if before[name] not in (None, value)}
    return ", ".join(f"{name} was {before[name]}, is {value}" for name, value in changed.items()) or None

"""Which state a run starts from: nothing, or its newest whole checkpoint; and whether that still is the same run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pellucid.checkpoint.build import config_of
from pellucid.checkpoint.run_directory import SNAPSHOTS, none_is_whole, steps_in
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint, step_name
from pellucid.config.base import flat
from pellucid.config.run import RunConfig
from pellucid.config.training import WarmupStableDecayConfig
from pellucid.errors import CheckpointError, ConfigError
from pellucid.files import discard
from pellucid.training.build import build_schedule
from pellucid.training.schedules import common_steps

_log = logging.getLogger(__name__)

# A resumed run must compute what the uninterrupted one would have. These keys only decide what is reported and kept.
# Where a vocabulary's file lies decides nothing either: what is in it is compared (`require_same_data`).
OPERATIONAL = (
    *("name.", "tokenizer.path.", "train.log_every_steps.", "train.processes."),
    *("evaluation.", "sample.", "checkpoint.", "trackers."),
)

RUN_FILES = ("config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md", "loss.png", "rewards.png", "skills.png")
TRACKER_FOLDERS = ("tensorboard", "wandb")


def require_no_run(run_dir: Path) -> None:
    """Raises ConfigError if the folder holds a run already: nobody's training is lost by a forgotten option."""
    if steps_in(run_dir) or (run_dir / "metrics.jsonl").exists():
        fix = "add --resume to continue it, --overwrite to start over, or --run-dir for another folder"
        raise ConfigError(str(run_dir), "there is a run in this folder", fix)


def clear_run(run_dir: Path) -> None:
    """Deletes the run in the folder, and nothing else that may lie there."""
    for step in steps_in(run_dir):
        discard(run_dir / step_name(step))
    for name in RUN_FILES:
        (run_dir / name).unlink(missing_ok=True)
    for name in (SNAPSHOTS, *TRACKER_FOLDERS):
        discard(run_dir / name)


def newest_whole_checkpoint(run_dir: Path, at_most: int | None = None) -> tuple[Checkpoint, Path] | None:
    """The newest checkpoint (of a step of `at_most`) that passes every check, after a warning for each that does not.

    None if the run has not saved yet. Raises CheckpointError if there are checkpoints but none is whole: starting
    silently from nothing would pass off a new run as the old one.
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
        raise none_is_whole(run_dir)
    return None


def found_for_steps(config: RunConfig, found: tuple[Checkpoint, Path], run_dir: Path) -> tuple[Checkpoint, Path]:
    """The checkpoint from which a run goes on to another number of steps than it was planned for.

    Up to it all updates had the learning rate that the run as it is now gives them, so it ends as if it had been
    planned so. Raises CheckpointError if there is none, or if more steps have been made.
    """
    checkpoint, directory = found
    before, now = config_of(checkpoint, str(directory)).train.steps, config.train.steps
    if checkpoint.state.step > now:
        what = f"the run has made {checkpoint.state.step:,} steps, and train.steps is {now:,}"
        raise CheckpointError(str(directory), what, "ask for more steps, or train in another --run-dir")
    if before == now:
        return found
    old, new = (build_schedule(config.schedule, steps) for steps in (before, now))
    most = common_steps(old, new, min(before, now))
    if checkpoint.state.step <= most:
        return found
    earlier = newest_whole_checkpoint(run_dir, most) if any(step <= most for step in steps_in(run_dir)) else None
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
    """Deletes the checkpoints after a step from which a run goes on to another end. A warning tells it."""
    later = [each for each in steps_in(run_dir) if each > step]
    if later:
        names = ", ".join(f"{each:,}" for each in later)
        what = "%s: goes on from step %s, for the learning rate after it now is another; deleted: the checkpoints of %s"
        _log.warning(what, run_dir, f"{step:,}", names)
    for each in later:
        discard(run_dir / step_name(each))


def require_same_run(config: RunConfig, checkpoint: Checkpoint, where: str) -> None:
    """Raises CheckpointError, listing the differences, if the checkpoint's config computes something else.

    How many steps it is planned for may differ: see `found_for_steps`.
    """
    saved = config_of(checkpoint, where)
    before, now = flat(saved.model_dump(mode="json")), flat(config.model_dump(mode="json"))
    keys = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    keys = [key for key in keys if key != "train.steps" and not f"{key}.".startswith(OPERATIONAL)]
    # A section of another type has other keys: its type says it all.
    replaced = tuple(key.removesuffix("type") for key in keys if key.endswith(".type"))
    keys = [key for key in keys if key.endswith(".type") or not key.startswith(replaced)]
    if keys:
        differences = [f"{key} was {json.dumps(before.get(key))}, is {json.dumps(now.get(key))}" for key in keys]
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        fix = "take these changes back, or start over with --overwrite or another --run-dir"
        raise CheckpointError(where, f"the config has changed: {', '.join(differences[:3])}{more}", fix)


def require_same_data(fingerprint: str, tokenizer_json: str, checkpoint: Checkpoint, where: str) -> None:
    """Raises CheckpointError if the corpus or the vocabulary is another than when the checkpoint was written."""
    if checkpoint.state.data_fingerprint != fingerprint:
        what = f"the corpus has changed (fingerprint was {checkpoint.state.data_fingerprint}, is {fingerprint})"
        fix = "bring the old text back, or start over with --overwrite or another --run-dir"
        raise CheckpointError(where, what, fix)
    if checkpoint.tokenizer_json != tokenizer_json:
        fix = "delete the prepared data, so that it is made again, or start over with --overwrite"
        raise CheckpointError(where, "the tokenizer has changed since this was saved", fix)


def require_same_reward(digest: str | None, checkpoint: Checkpoint, where: str) -> None:
    """Raises CheckpointError if another reward model than before would judge the answers."""
    if checkpoint.state.reward_sha256 not in (None, digest):  # older checkpoints do not tell
        fix = "bring its checkpoint back, or name it as RUN@STEP if it is still there; or start over with --overwrite"
        raise CheckpointError(where, "the reward model of objective.reward.run has changed since this was saved", fix)


def other_environment(now: Mapping[str, object], checkpoint: Checkpoint) -> str | None:
    """What is not as it was when the checkpoint was written, so that the run continues with other roundings."""
    before = checkpoint.state.model_dump(include=set(now))
    changed = {name: value for name, value in now.items() if before[name] not in (None, value)}
    return ", ".join(f"{name} was {before[name]}, is {value}" for name, value in changed.items()) or None

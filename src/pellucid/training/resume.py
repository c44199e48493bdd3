"""Which state a run starts from: nothing, or its newest whole checkpoint; and whether that still is the same run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pellucid.checkpoint.build import config_of
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint, step_name
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError
from pellucid.files import discard

_log = logging.getLogger(__name__)

# A resumed run must compute what the uninterrupted one would have. These keys only decide what is reported and kept.
OPERATIONAL = ("name.", "train.log_every_steps.", "train.processes.", "evaluation.", "sample.", "checkpoint.")

RUN_FILES = ("config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md", "loss.png", "skills.png")


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


def newest_whole_checkpoint(run_dir: Path) -> tuple[Checkpoint, Path] | None:
    """The newest checkpoint that passes every check, after a warning for each newer one that does not.

    None if the run has not saved yet. Raises CheckpointError if there are checkpoints but none is whole: starting
    silently from nothing would pass off a new run as the old one.
    """
    steps = steps_in(run_dir)
    for step in reversed(steps):
        directory = run_dir / step_name(step)
        try:
            return read_checkpoint(directory), directory
        except CheckpointError as error:
            _log.warning("%s", error)
    if steps:
        raise CheckpointError(str(run_dir), "no checkpoint is whole", "start over with --overwrite")
    return None


def require_same_run(config: RunConfig, checkpoint: Checkpoint, where: str) -> None:
    """Raises CheckpointError, listing the differences, if the checkpoint's config computes something else."""
    saved = config_of(checkpoint, where)
    before, now = _flat(saved.model_dump(mode="json")), _flat(config.model_dump(mode="json"))
    keys = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    keys = [key for key in keys if not f"{key}.".startswith(OPERATIONAL)]
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


def other_environment(now: Mapping[str, object], checkpoint: Checkpoint) -> str | None:
    """What is not as it was when the checkpoint was written, so that the run continues with other roundings."""
    before = checkpoint.state.model_dump(include=set(now))
    changed = {name: value for name, value in now.items() if before[name] not in (None, value)}
    return ", ".join(f"{name} was {before[name]}, is {value}" for name, value in changed.items()) or None


def _flat(value: object, key: str = "") -> dict[str, object]:
    """`{"model": {"d_model": 8}}` as `{"model.d_model": 8}`."""
    if not isinstance(value, dict):
        return {key: value}
    inner = (_flat(each, f"{key}.{name}" if key else name) for name, each in value.items())
    return {path: leaf for flat in inner for path, leaf in flat.items()}

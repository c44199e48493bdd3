"""Recognises the files of a run by what is in them, as other people's files may have the same names.

Nothing else is deleted or replaced.
"""

import re
import shutil
from contextlib import suppress
from pathlib import Path

from pellucid.checkpoint.step_directory import FILES, MANIFEST, METRICS, SAMPLES, SNAPSHOTS, STEP_NAME
from pellucid.config.yaml_source import parse_yaml, write_yaml
from pellucid.errors import RUN_DIR, ConfigError, Fix
from pellucid.files import discard, require_regular

# It is there from the beginning of a run to its first save. So if there are logs, but neither it nor checkpoints, then
# checkpoints are lost.
NOT_SAVED_YET = ".not-saved-yet"
LOCK = ".lock"  # a run's process holds it, and it stays when the process ends
CONFIG = "config.yaml"
FIGURES = ("loss.png", "rewards.png", "skills.png")
STARTS = {  # how the other files begin
    NOT_SAVED_YET: b"",
    LOCK: b"",
    METRICS: b'{"step": ',
    SAMPLES: b"## After ",
    "tokenizer.json": b'{\n  "version": ',
    "state.json": b'{\n  "step": ',
    MANIFEST: b'{"format": ',
}
INSIDE = {  # the files in the folders of trackers
    "tensorboard": re.compile(r"events\.out\.tfevents\..+"),
    "wandb": re.compile(r"run_id|(offline-)?run-.+|latest-run|debug.*\.log|.+\.json"),
}
FILES_OF_RUN = (NOT_SAVED_YET, CONFIG, "tokenizer.json", METRICS, SAMPLES, *FIGURES)
OF_RUN = re.compile("|".join([*map(re.escape, (*FILES_OF_RUN, *INSIDE, SNAPSHOTS)), STEP_NAME.pattern]))
LEFTOVER = re.compile(rf"\.(?:tmp|trash)-(?P<name>{OF_RUN.pattern})")  # of a save or a deletion that was killed


def require_own(folder: Path) -> None:
    """Raise ConfigError if the folder holds something that a new run would replace, and that is not of a run."""
    paths = _with_names_of_a_run(folder)
    is_run = bool(paths) and _holds_run(folder)
    foreign = [path.name for path in paths if not (is_run and is_own(path))]
    if foreign:
        names, fix = ", ".join(foreign[:3]), Fix("name another folder with {}, or move this away", RUN_DIR)
        what = f"{names}: a run writes files of this name, and what is there is not of a run, or was edited"
        raise ConfigError(str(folder), what, fix)


def _holds_run(folder: Path) -> bool:
    """Whether there is a run: a checkpoint or a snapshot, its log, or one that has begun and not saved yet."""
    # Earlier versions wrote no NOT_SAVED_YET, and a run may have been killed before its first line.
    begun = (NOT_SAVED_YET,), (LOCK, CONFIG, "tokenizer.json")
    if any(all((folder / name).exists() and is_own(folder / name) for name in names) for names in begun):
        return True
    try:
        log = folder / METRICS
        holders = [log] if log.exists() and log.stat().st_size else []
        holders += [path for pattern in ("step-*", "snapshots/step-*") for path in folder.glob(pattern)]
        return any(is_own(path) for path in holders if not path.is_dir() or any(path.iterdir()))
    except FileNotFoundError:  # deleted meanwhile by a process that trains here, as the lock will tell
        return True


def begin_run(folder: Path) -> None:
    """Delete the run in the folder, but no other files, and mark it as one that has not saved yet.

    Its logs are deleted last: a run that is killed meanwhile either has checkpoints and logs, or no checkpoints.
    """
    (folder / NOT_SAVED_YET).touch()
    for path in sorted(filter(is_own, _with_names_of_a_run(folder)), key=Path.is_file):
        if path.is_dir():
            discard(path)
        elif path.name != NOT_SAVED_YET:
            path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Delete what killed saves and deletions of a run have left in its folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        match = LEFTOVER.fullmatch(path.name)
        if match is None or path.is_symlink():
            continue
        with suppress(OSError):
            if path.is_dir() and _holds_nothing_else(path, match["name"]):
                shutil.rmtree(path)
            elif path.is_file() and match["name"] in FILES_OF_RUN:
                path.unlink()


def is_own(path: Path) -> bool:
    """Whether a file or folder with a name of a run's was written by Pellucid; damaged or not, if its start is left."""
    if path.is_symlink():
        return False
    try:
        if not path.is_dir():
            return _is_own_file(path)
        steps = [step for step in (path, *path.glob("step-*")) if STEP_NAME.fullmatch(step.name)]
        return _holds_nothing_else(path, path.name) and all(map(_is_recognisable, steps))
    except FileNotFoundError:  # deleted meanwhile
        return True
    except (OSError, ValueError, ConfigError):
        return False


def _is_recognisable(step: Path) -> bool:
    """Whether a step's folder is empty, or one of its files is recognised."""
    files = list(step.iterdir())
    return not files or any(_is_own_file(path) for path in files if path.name in STARTS)


def _holds_nothing_else(folder: Path, name: str) -> bool:
    """Whether a folder holds only what is written to one of this name."""
    inside = list(folder.iterdir())
    if STEP_NAME.fullmatch(name):
        return all(path.name in (*FILES, MANIFEST) and path.is_file() for path in inside)
    if name == SNAPSHOTS:
        steps = {path: (LEFTOVER.fullmatch(path.name) or {"name": path.name})["name"] for path in inside}
        return all(STEP_NAME.fullmatch(step) and _holds_nothing_else(path, step) for path, step in steps.items())
    return name in INSIDE and all(INSIDE[name].fullmatch(path.name) for path in inside)


def _is_own_file(path: Path) -> bool:
    require_regular(path)
    if path.name == CONFIG:  # as it is dumped: without comments
        text = path.read_text(encoding="utf-8")
        return text == write_yaml(parse_yaml(text, str(path))[0])
    with path.open("rb") as file:
        if path.name in FIGURES:
            return b"Matplotlib" in file.read(1000)
        if (start := STARTS.get(path.name)) is None:  # a file in the place of a folder
            return False
        read = file.read(len(start) + 1).replace(b"\r\n", b"\n")  # as on Windows
        return start.startswith(read[: len(start) or 1])


def _with_names_of_a_run(folder: Path) -> list[Path]:
    """All entries of a folder with a name of a run's; none of a folder that cannot be read, or is not there."""
    with suppress(OSError):
        return [path for path in sorted(folder.iterdir()) if OF_RUN.fullmatch(path.name)]
    return []

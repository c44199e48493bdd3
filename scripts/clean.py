"""Deletes what Pellucid wrote to data/ and checkpoints/ and leaves everything else there, as texts of your own.

`make clean` runs it. It needs no package, for .venv may be gone; a test holds its names against what is written.
"""

import re
import shutil
from pathlib import Path

PREPARED = re.compile(r".+-[0-9a-f]{12}")  # the folder of a corpus
LEFTOVER = re.compile(rf"\.{PREPARED.pattern}\.(draft|lock)|\.(tmp|trash)-{PREPARED.pattern}")
DOWNLOADED = re.compile(r"[0-9a-f]{12}-.+")  # in data/downloads
PREPARED_FILES = "tokenizer.json manifest.json SHA256SUMS scale.json *.bin"
# Folders in one that .lock marks as that of a run or an experiment.
STEP = re.compile(r"step-\d{8,}|snapshots|tensorboard|wandb|\.(tmp|trash)-.+")
INSIDE = re.compile(r"(step-\d{8,}/)?[a-z]+\.(safetensors|json|yaml)|events\.out\..+|(offline-)?run[-_].+|debug.*\.log")
RUN_FILES = (
    "config.yaml tokenizer.json metrics.jsonl samples.md loss.png skills.png rewards.png plan.json log.txt result.json "
    ".not-saved-yet"
)
REPORT_FILES = "report.md results.csv *.png"
CONCLUSION = "\n## What it shows"  # what people have written into a report


def clean(folder: Path) -> None:
    """Goes through a folder, inner ones first. A folder that is empty at the end goes as well."""
    names = {path.name for path in folder.iterdir()}
    for path in folder.iterdir():
        ours = [LEFTOVER, *([STEP] if ".lock" in names else []), *([DOWNLOADED] if folder.name == "downloads" else [])]
        is_mixed = STEP.fullmatch(path.name) and path.is_dir() and holds_more(path)
        if not is_mixed and any(pattern.fullmatch(path.name) for pattern in ours):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif path.is_dir() and not path.is_symlink():
            clean(path)
            if not any(path.iterdir()):
                path.rmdir()
    if PREPARED.fullmatch(folder.name) and "SHA256SUMS" in names:
        delete(folder, PREPARED_FILES)
    if ".lock" in names:
        delete(folder, ".lock")
        if "report.md" not in names:
            delete(folder, RUN_FILES)
        elif CONCLUSION not in (folder / "report.md").read_text(encoding="utf-8"):
            delete(folder, REPORT_FILES)


def holds_more(folder: Path) -> bool:
    """Whether a folder of a run's holds files that no run writes there."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return not all(INSIDE.fullmatch(file) for file in files)


def delete(folder: Path, patterns: str) -> None:
    for pattern in patterns.split():
        for path in folder.glob(pattern):
            if path.is_file():
                path.unlink()


if __name__ == "__main__":
    for name in ("data", "checkpoints"):
        clean(Path(name))

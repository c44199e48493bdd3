"""Progress of preparing a corpus, so that an interrupted preparation continues from there.

progress.json in the unfinished folder is written only after everything that it refers to is on disk.
"""

from collections.abc import Mapping
from pathlib import Path

from pellucid.config.base import Section
from pellucid.corpora.corpus import Split
from pellucid.data.token_file import WrittenTokens, is_written
from pellucid.files import sha256, written_whole

PROGRESS_FILE = "progress.json"  # it counts parts: rename it if parts are ever cut differently


class SplitProgress(Section):
    """Progress in a split: parts written, their bytes and characters, and the state of the token file."""

    n_parts: int
    n_bytes: int
    n_characters: int
    written: WrittenTokens


class Progress(Section):
    """tokenizer_sha256: hash of the trained tokenizer.json.   splits: those that are at least partly written."""

    tokenizer_sha256: str
    splits: dict[Split, SplitProgress]


def read_progress(draft: Path, tokenizer_file: Path, file_of_split: Mapping[Split, str]) -> Progress | None:
    """The recorded progress; None if there is none, or if a file does not begin with the recorded bytes."""
    try:
        progress = Progress.model_validate_json((draft / PROGRESS_FILE).read_bytes())
        is_intact = sha256(tokenizer_file) == progress.tokenizer_sha256 and all(
            is_written(draft / file_of_split[split], done.written) for split, done in progress.splits.items()
        )
        return progress if is_intact else None
    except (OSError, ValueError):
        return None


def write_progress(draft: Path, progress: Progress) -> None:
    with written_whole(draft / PROGRESS_FILE) as file:
        file.write_text(progress.model_dump_json(), encoding="utf-8")

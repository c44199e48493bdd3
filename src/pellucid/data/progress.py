"""How far preparing a corpus has come, so that it goes on from there if it is stopped.

progress.json in the unfinished folder is written only after everything that it speaks of is on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pellucid.config.base import Section
from pellucid.corpora.corpus import Split
from pellucid.data.token_file import WrittenTokens, is_written
from pellucid.files import sha256, written_whole

PROGRESS_FILE = "progress.json"  # parts are counted in it: if they are cut in another way, give it another name


class SplitProgress(Section):
    """What the first parts of a split came to. written: how far its token file is."""

    n_parts: int
    n_bytes: int
    n_characters: int
    written: WrittenTokens


class Progress(Section):
    """tokenizer_sha256: of the tokenizer.json that was learned.   splits: those of which a part is written."""

    tokenizer_sha256: str
    splits: dict[Split, SplitProgress]


def read_progress(draft: Path, tokenizer_file: Path, file_of_split: Mapping[Split, str]) -> Progress | None:
    """None if there is none, or a file does not begin with the bytes that it speaks of."""
    try:
        progress = Progress.model_validate_json((draft / PROGRESS_FILE).read_bytes())
        is_so = sha256(tokenizer_file) == progress.tokenizer_sha256 and all(
            is_written(draft / file_of_split[split], done.written) for split, done in progress.splits.items()
        )
        return progress if is_so else None
    except (OSError, ValueError):
        return None


def write_progress(draft: Path, progress: Progress) -> None:
    with written_whole(draft / PROGRESS_FILE) as file:
        file.write_text(progress.model_dump_json(), encoding="utf-8")

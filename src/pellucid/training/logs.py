"""Cuts the logs of a resumed run, metrics.jsonl and samples.md, back to their lengths at its checkpoint.

A checkpoint records their lengths and hashes. A log that no longer matches was damaged or edited: the original is kept
beside it, a warning says so, and its readable lines take its place.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count, takewhile
from pathlib import Path

from pellucid.checkpoint.run_directory import is_log_unchanged
from pellucid.checkpoint.step_directory import METRICS, SAMPLES, State, step_name
from pellucid.files import require_regular, written_whole
from pellucid.training.metrics import row_in

_log = logging.getLogger(__name__)

Lines = list[bytes]


def cut_back_logs(run_dir: Path, state: State, last_step: int) -> None:
    """Drop all entries after `last_step`, the last that the checkpoint reports: the run will write them again."""
    for name, legible in ((METRICS, rows_until), (SAMPLES, samples_until)):
        file, seen = run_dir / name, state.logs.get(name)
        if seen is not None and is_log_unchanged(file, seen):
            os.truncate(file, seen.bytes)  # needs no disk space, and leaves no half-written file
        elif file.exists():
            _rescue(file, partial(legible, last_step), state)
        elif seen is not None:
            _log.warning("%s: missing, and it was there when %s was saved", file, step_name(state.step))


def rows_until(step: int, lines: Lines) -> Lines:
    """The lines with rows of steps up to this one, in the order of the steps."""
    rows = {row["step"]: line for line in lines if line.endswith(b"\n") and (row := row_in(line)) is not None}
    return [rows[row_step] for row_step in sorted(rows) if row_step <= step]


def samples_until(step: int, lines: Lines) -> Lines:
    """All lines before the first heading of a later step."""

    def is_early(line: bytes) -> bool:
        heading = re.fullmatch(rb"## After (\d{1,18}) steps\r?\n", line)
        return heading is None or int(heading[1]) <= step

    return list(takewhile(is_early, lines))


def _rescue(file: Path, legible: Callable[[Lines], Lines], state: State) -> None:
    """Replace a damaged log by its legible lines, and keep the original beside it.

    A log that no checkpoint has recorded yet, and of which only the end is illegible, is simply cut.
    """
    require_regular(file)
    lines = file.read_bytes().splitlines(keepends=True)
    readable = legible(lines)
    if file.name not in state.logs and readable == lines[: len(readable)]:
        os.truncate(file, sum(map(len, readable)))
        return
    names = (f"{file.name}.damaged{'' if i == 1 else f'-{i}'}" for i in count(1))
    aside = next(path for name in names if not (path := file.with_name(name)).exists())
    with written_whole(aside) as draft:
        shutil.copyfile(file, draft)
    with written_whole(file) as draft:
        draft.write_bytes(b"".join(readable))
    what = "%s: changed since %s was saved; the original is kept as %s; "
    what += "%d of its %d lines were usable and are carried over"
    _log.warning(what, file, step_name(state.step), aside.name, len(readable), len(lines))

"""Preferences: JSON lines or Parquet files with a prompt, the chosen answer, and the rejected one."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from pellucid.corpora.corpus import Piece, Split, Turn
from pellucid.corpora.hugging_face import HuggingFaceCorpus, is_held_out
from pellucid.errors import DataError

COLUMNS = ("prompt", "chosen", "rejected")
FORMAT_OF = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


class PreferencesCorpus:
    """Pairs of answers, each as two conversations: the prompt with the chosen, then with the rejected answer.

    Every n-th pair is held out. Raises DataError for files that cannot be read, and for a pair without text or with
    equal answers.
    """

    def __init__(self, files: Sequence[str], validation_fraction: float) -> None:
        suffixes = {Path(file).suffix for file in files}
        if len(suffixes) != 1 or not suffixes <= FORMAT_OF.keys():
            what = f"{' and '.join(sorted(suffixes)) or 'no suffix'}: preferences are read from files of one format"
            raise DataError("corpus.files", what, f"name files of one suffix, of {', '.join(FORMAT_OF)}")
        self._source = HuggingFaceCorpus(FORMAT_OF[suffixes.pop()], data_files=list(files))
        self._validation_fraction = validation_fraction

    @cached_property
    def identity(self) -> dict[str, object]:
        """The contents of the files, and how they are split."""
        files = self._source.identity["local_files"]
        return {"type": "preferences", "local_files": files, "validation_fraction": self._validation_fraction}

    def local_files(self) -> list[Path]:
        """The files of the corpus, whose contents make its identity."""
        return self._source.local_files()

    def conversations(self, split: Split) -> Iterator[Sequence[Turn]]:
        """Two conversations for each pair, the one with the chosen answer first."""
        for i, (prompt, *answers) in enumerate(self._pairs()):
            if is_held_out(i, self._validation_fraction) == (split == "validation"):
                for answer in answers:
                    yield Turn("user", prompt), Turn("assistant", answer)

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The texts of the turns, each a document."""
        return (Piece(turn.text, ends_document=True) for turns in self.conversations(split) for turn in turns)

    def _pairs(self) -> Iterator[tuple[str, str, str]]:
        numbers = count(1)
        for columns in self._source.columns("train", COLUMNS):
            if missing := [name for name in COLUMNS if name not in columns]:
                what = f"there is no column {' or '.join(missing)}, only {', '.join(columns)}"
                raise DataError("corpus.files", what, f"name the columns {', '.join(COLUMNS)}")
            yield from map(_checked, numbers, _rows(columns))


def _rows(columns: Mapping[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*(columns[name] for name in COLUMNS), strict=True)


def _checked(number: int, row: tuple[Any, ...]) -> tuple[str, str, str]:
    where = f"corpus.files, pair {number:,}"
    for name, text in zip(COLUMNS, row, strict=True):
        if not isinstance(text, str):
            what = "is missing" if text is None else f"holds {type(text).__name__}, not text"
            raise DataError(where, f"{name} {what}", "write the three columns as plain text")
        if not text or text.isspace():
            raise DataError(where, f"{name} is empty", "leave out this pair")
    prompt, chosen, rejected = row
    if chosen == rejected:
        raise DataError(where, "chosen and rejected are the same answer: nothing was preferred", "leave out this pair")
    return prompt, chosen, rejected

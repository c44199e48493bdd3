"""Preferences: JSON lines or Parquet files with a prompt and its answers: the chosen and the rejected, or ranked."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pellucid.corpora.corpus import ConversationCorpus, Split, Turn
from pellucid.corpora.hugging_face import HuggingFaceCorpus, is_held_out
from pellucid.errors import DataError

COLUMNS = ("prompt", "chosen", "rejected")
COLUMNS_OF_RANKINGS = ("prompt", "ranked")
FORMAT_OF = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


class PreferencesCorpus(ConversationCorpus):
    """Pairs of answers, each as two conversations: the prompt with the chosen, then with the rejected answer.

    With `answers` above 2, rankings from best to worst, each as that many conversations. Every n-th is held out. Raises
    DataError for files that cannot be read, and for a pair without text or with equal answers.
    """

    def __init__(self, files: Sequence[str], validation_fraction: float, answers: int = 2) -> None:
        suffixes = {Path(file).suffix for file in files}
        if len(suffixes) != 1 or not suffixes <= FORMAT_OF.keys():
            what = f"{' and '.join(sorted(suffixes)) or 'no suffix'}: preferences are read from files of one format"
            raise DataError("corpus.files", what, f"name files of one suffix, of {', '.join(FORMAT_OF)}")
        self._source = HuggingFaceCorpus(FORMAT_OF[suffixes.pop()], data_files=list(files))
        self._validation_fraction = validation_fraction
        self._kind = "pair" if answers == 2 else "ranking"
        self._columns: Sequence[str] = COLUMNS if answers == 2 else COLUMNS_OF_RANKINGS
        self._answers = answers

    @cached_property
    def identity(self) -> dict[str, object]:
        """The contents of the files, and how they are split."""
        files = self._source.identity["local_files"]
        rankings = {} if self._answers == 2 else {"answers": self._answers}
        return {
            "type": "preferences",
            "local_files": files,
            "validation_fraction": self._validation_fraction,
            **rankings,
        }

    def local_files(self) -> list[Path]:
        """The files of the corpus, whose contents make its identity."""
        return self._source.local_files()

    def notes(self) -> list[str]:
        """Notes on what was left out of the files, and on what may be a mistake in them."""
        return self._source.notes()

    def conversations(self, split: Split) -> Iterator[Sequence[Turn]]:
        """The conversations of each pair, or ranking, the one with the best answer first."""
        for i, (prompt, *answers) in enumerate(self._pairs()):
            if is_held_out(i, self._validation_fraction) == (split == "validation"):
                for answer in answers:
                    yield Turn("user", prompt), Turn("assistant", answer)

    def _pairs(self) -> Iterator[tuple[str, ...]]:
        for number, row in enumerate(self._source.rows("train", self._columns), 1):
            if missing := [name for name in self._columns if name not in row.values]:
                what = f"there is no column {' or '.join(missing)}, only {', '.join(row.values)}"
                fix = f"name the columns {', '.join(self._columns)}"
                more = ", or set corpus.answers to the number of ranked answers" if "ranked" in row.values else ""
                raise DataError(row.where, what, fix + more)
            prompt, *answers = (row.values[name] for name in self._columns)
            yield self._checked(f"{row.where}, {self._kind} {number:,}", prompt, answers)

    def _checked(self, where: str, prompt: Any, answers: list[Any]) -> tuple[str, ...]:
        """The prompt and its answers; those of a ranking are a list in a single column."""
        names = self._columns
        if self._columns == COLUMNS_OF_RANKINGS:
            answers = answers[0] if isinstance(answers[0], list) else answers
            if len(answers) != self._answers:
                what = f"the number of ranked answers is {len(answers)}, but corpus.answers is {self._answers}"
                raise DataError(where, what, "list the same number in each ranking, from best to worst")
            names = ("prompt", *(f"answer {i}" for i in range(1, self._answers + 1)))
        for name, text in zip(names, (prompt, *answers), strict=True):
            if not isinstance(text, str):
                what = "is missing" if text is None else f"holds {type(text).__name__}, not text"
                raise DataError(where, f"{name} {what}", "write all of it as plain text")
            if not text or text.isspace():
                raise DataError(where, f"{name} is empty", f"leave out this {self._kind}")
        if len(set(answers)) < len(answers):
            same = "chosen and rejected" if self._kind == "pair" else "two answers"
            what = f"{same} are the same answer: nothing was preferred"
            raise DataError(where, what, f"leave out this {self._kind}")
        return prompt, *answers

"""Preferences: JSON lines or Parquet files with a prompt and its answers: the chosen and the rejected, or ranked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pellucid.config.data import FORMAT_OF_SUFFIX
from pellucid.corpora.corpus import ConversationCorpus, Split, Turn
from pellucid.corpora.hugging_face import DataSet
from pellucid.errors import DataError

FORMATS = {suffix: name for suffix, name in FORMAT_OF_SUFFIX.items() if name != "csv"}  # no cell of CSV is a list


@dataclass
class PreferencesCorpus(DataSet, ConversationCorpus):
    """Pairs of answers, each as two conversations: the prompt with the chosen, then with the rejected answer.

    With `answers` above 2, rankings from best to worst, each as that many conversations. Raises as a DataSet does, and
    DataError for a pair without text or with equal answers.
    """

    kind = "preferences"

    answers: int = 2

    @cached_property
    def identity(self) -> dict[str, object]:
        """The contents of the files, and how they are split."""
        files, fraction = [self._hashes[path] for path in self.local_files()], self.validation_fraction
        rankings = {} if self.answers == 2 else {"answers": self.answers}
        return {"type": self.kind, "local_files": files, "validation_fraction": fraction, **rankings}

    def conversations(self, split: Split) -> Iterator[Sequence[Turn]]:
        """The conversations of each pair, or ranking, the one with the best answer first."""
        return chain.from_iterable(self.documents(split, self._read))

    def _read(self, split: str) -> Iterator[list[Sequence[Turn]]]:
        """The conversations of each pair."""
        wanted = ("prompt", "chosen", "rejected") if self.answers == 2 else ("prompt", "ranked")
        for number, (where, values) in enumerate(self.rows(split, wanted), 1):
            if missing := [name for name in wanted if name not in values]:
                what = f"there is no column {' or '.join(missing)}, only {', '.join(values)}"
                more = ", or set corpus.answers to the number of ranked answers" if "ranked" in values else ""
                raise DataError(where, what, f"name the columns {', '.join(wanted)}{more}")
            texts = [values[name] for name in wanted]
            prompt, *answers = self._checked(f"{where}, {self._noun} {number:,}", wanted, texts)
            yield [(Turn("user", prompt), Turn("assistant", answer)) for answer in answers]

    @property
    def _noun(self) -> str:
        return "pair" if self.answers == 2 else "ranking"

    def _checked(self, where: str, names: Sequence[str], texts: list[Any]) -> list[str]:
        """The prompt and its answers; those of a ranking are a list in a single column."""
        if self.answers > 2:
            prompt, ranked = texts
            texts = [prompt, *(ranked if isinstance(ranked, list) else [ranked])]
            names = ["prompt", *(f"answer {i}" for i in range(1, self.answers + 1))]
            if len(texts) != len(names):
                what = f"the number of ranked answers is {len(texts) - 1}, but corpus.answers is {self.answers}"
                raise DataError(where, what, "list the same number in each ranking, from best to worst")
        for name, text in zip(names, texts, strict=True):
            if not isinstance(text, str):
                what = "is missing" if text is None else f"holds {type(text).__name__}, not text"
                raise DataError(where, f"{name} {what}", "write all of it as plain text")
            if not text or text.isspace():
                raise DataError(where, f"{name} is empty", f"leave out this {self._noun}")
        if len(set(texts[1:])) < len(texts) - 1:
            same = "chosen and rejected" if self.answers == 2 else "two answers"
            what = f"{same} are the same answer: nothing was preferred"
            raise DataError(where, what, f"leave out this {self._noun}")
        return texts


def preferences(files: Sequence[str], validation_fraction: float, answers: int = 2) -> PreferencesCorpus:
    """The preferences in these files. DataError for files of other formats, or of several."""
    suffixes = {Path(file).suffix for file in files}
    if len(suffixes) != 1 or not suffixes <= FORMATS.keys():
        what = f"{' and '.join(sorted(suffixes)) or 'no suffix'}: preferences are read from files of one format"
        raise DataError("corpus.files", what, f"name files of one suffix, of {', '.join(FORMATS)}")
    file_format, names = FORMATS[suffixes.pop()], list(files)
    return PreferencesCorpus(file_format, data_files=names, validation_fraction=validation_fraction, answers=answers)

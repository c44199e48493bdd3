"""Data sets of the Hugging Face hub, and local JSON, text, Parquet and CSV files, read by the library `datasets`."""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import datasets

from pellucid.config.data import FORMATS
from pellucid.corpora.corpus import PIECE_LENGTH, Piece, Split, cut_into_pieces
from pellucid.corpora.text_files import hash_of
from pellucid.errors import DataError, InputOutputError

DataFiles = str | list[str] | dict[str, str | list[str]]
Document = TypeVar("Document")
ROWS_AT_A_TIME = 256
SAFE = (*FORMATS, "arrow", "cache")  # Arrow is the format of the library's own copies


@dataclass
class DataSet:
    """The rows of a data set, with a part held out.

    Without a `validation_split`, every n-th document is held out, n = 1/validation_fraction; so a stream of
    unknown length can be split too. Raises DataError for anything `load_dataset` refuses; InputOutputError if the
    network does not answer (a stream tries 20 times).
    """

    kind: ClassVar[str]  # its `corpus.type`

    path: str
    name: str | None = None
    split: str = "train"
    validation_split: str | None = None
    validation_fraction: float = 0.1
    data_files: DataFiles | None = None
    streaming: bool = False

    def __post_init__(self) -> None:
        datasets.disable_progress_bars()
        # Otherwise the library reports each use to a server, even of local files, and hangs without a network.
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False

    @cached_property
    def identity(self) -> dict[str, object]:
        """All settings but `streaming`, which does not change the text, and the hashes of local files."""
        settings = {key: value for key, value in asdict(self).items() if key != "streaming"}
        if self.validation_split:
            settings["validation_fraction"] = None
        return {"type": self.kind, **settings, "local_files": self._hashes()}

    def local_files(self) -> list[Path]:
        """The local files among the data files, or those of the local folder that `path` names."""
        folder = Path(self.path)
        if self.data_files is None:
            return sorted(path for path in folder.rglob("*") if path.is_file())
        named = self.data_files.values() if isinstance(self.data_files, dict) else [self.data_files]
        patterns = chain.from_iterable([item] if isinstance(item, str) else item for item in named)
        base = folder if folder.is_dir() else Path()
        matches = chain.from_iterable(sorted(glob(str(base / pattern), recursive=True)) for pattern in patterns)
        paths = list(map(Path, matches))
        if odd := [path for path in paths if not (path.is_file() or path.is_dir())]:
            raise DataError(str(odd[0]), "is not a regular file", "name files of rows")
        return [path for path in paths if path.is_file()]

    def documents(self, split: Split, read: Callable[[str], Iterator[Document]]) -> Iterator[Document]:
        """The documents of a split in order. `read` gives all documents of one of the data set's own splits."""
        if self.validation_split is not None:
            return read(self.split if split == "train" else self.validation_split)
        return (
            document
            for i, document in enumerate(read(self.split))
            if is_held_out(i, self.validation_fraction) == (split == "validation")
        )

    def columns(self, split: str, *wanted: Sequence[str]) -> Iterator[Mapping[str, list[Any]]]:
        """Batches of rows of one of the data set's own splits, with the first list of `wanted` columns that it has.

        If it has none of these lists, all columns.
        """
        try:
            # The library's cache identifies local files by name and date, ours by their contents.
            contents = hashlib.sha256("".join(self._hashes()).encode()).hexdigest()[:12] if self.local_files() else ""
            cache = str(Path(datasets.config.HF_DATASETS_CACHE, contents))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about formats that are refused anyway
                reader = datasets.load_dataset_builder(
                    self.path, self.name, data_files=self.data_files, cache_dir=cache
                )
            _require_known_format(type(reader).__module__.rpartition(".")[2])
            if self.streaming:
                rows = reader.as_streaming_dataset(split=split)
            else:
                reader.download_and_prepare()
                rows = reader.as_dataset(split=split)
            if names := next((each for each in wanted if set(each) <= set(rows.column_names or ())), None):
                rows = rows.select_columns(list(names))  # the others may be images
            yield from rows.iter(batch_size=ROWS_AT_A_TIME)
        except Exception as error:  # the library, its file systems and its parsers raise all kinds
            where = f"corpus.path {self.path}" + (f", data_files {self.data_files}" if self.data_files else "")
            causes = _causes(error)
            what = f"cannot read split {split}"
            if lost := next((cause for cause in causes if isinstance(cause, ConnectionError | TimeoutError)), None):
                fix = "check the network and run it again"
                raise InputOutputError(where, f"{what}: {_first_line(lost)}", fix) from error
            raise DataError(where, f"{what}: {_first_line(causes[-1])}", "check corpus.*") from error

    def _hashes(self) -> list[str]:
        return [hash_of(path) for path in self.local_files()]


@dataclass
class HuggingFaceCorpus(DataSet):
    """One document per row: the text of column `text_field`. Rows without text are left out.

    Raises as a DataSet does, and DataError for a missing column.
    """

    kind = "hugging_face"

    text_field: str = "text"

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split in the order of the data set."""
        return chain.from_iterable(
            cut_into_pieces(text[i : i + PIECE_LENGTH] for i in range(0, len(text), PIECE_LENGTH))
            for text in self.documents(split, self._texts)
        )

    def _texts(self, split: str) -> Iterator[str]:
        where = f"corpus.text_field {self.text_field}"
        for columns in self.columns(split, [self.text_field]):
            if self.text_field not in columns:
                what = f"no such column in {self.path}"
                raise DataError(where, what, f"name one of its columns: {', '.join(columns)}")
            for text in columns[self.text_field]:
                if not isinstance(text, str | None):
                    raise DataError(where, f"holds {type(text).__name__}, not text", "name a column of text")
                if text and not text.isspace():
                    yield text


def _require_known_format(format_: str) -> None:
    """Raise ValueError for other formats of the library: some would be unpickled, which can run any code."""
    if format_ not in SAFE:
        raise ValueError(f"data in the format {format_} is not read; Pellucid reads {', '.join(FORMATS)}")


def is_held_out(i: int, fraction: float) -> bool:
    """Whether document i is held out: every n-th one, so that their share stays close to the fraction."""
    return int((i + 1) * fraction) > int(i * fraction)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the original last: the library wraps errors in others that say less."""
    return [error, *(_causes(error.__cause__) if error.__cause__ else [])]


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [f"no data in it ({type(error).__name__})"]
    return lines[0].rstrip(".")

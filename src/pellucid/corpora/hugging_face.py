"""Data sets: local JSON, text, Parquet and CSV files, and those of the Hugging Face hub, read by `datasets`.

Local files are read by `rows.py`, as the library guesses which texts are numbers, dates or missing.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from glob import glob
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import datasets

from pellucid.config.data import FORMATS
from pellucid.corpora import hub
from pellucid.corpora.corpus import PIECE_LENGTH, Corpus, Piece, Split, cut_into_pieces
from pellucid.corpora.local_files import each_once, find_files, hashes_of, notes_on_copies, without
from pellucid.corpora.rows import ROWS_AT_A_TIME, Row, Wanted, columns_to_read, rows_of_file
from pellucid.errors import DataError, InputOutputError

DataFiles = str | list[str] | dict[str, str | list[str]]
Document = TypeVar("Document")
SAFE = (*FORMATS, "arrow", "cache")  # Arrow is the format of the library's own copies
SUFFIX_OF_FORMAT = {"json": ".jsonl", "text": ".txt", "parquet": ".parquet", "csv": ".csv"}


@dataclass
class DataSet(Corpus):
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
    field: str | None = None

    def __post_init__(self) -> None:
        datasets.disable_progress_bars()
        # Otherwise the library reports each use to a server, even of local files, and hangs without a network.
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False

    @cached_property
    def identity(self) -> dict[str, object]:
        """All settings but `streaming`, which does not change the text, and the hashes of local files."""
        settings = {key: value for key, value in asdict(self).items() if key != "streaming" and not key.startswith("_")}
        if self.validation_split:
            settings["validation_fraction"] = None
        if self.field is None:
            del settings["field"]  # which earlier versions did not know
        if any(path.suffix in (".csv", ".tsv") for path in self.local_files()) or self.path == "csv":
            settings["cells_are_text"] = True  # earlier versions guessed which are numbers or missing
        hashes = [self._hashes[path] for path in self.local_files()]
        return {"type": self.kind, **settings, "local_files": hashes}

    def local_files(self) -> list[Path]:
        """The local files among the data files, or those of the local folder that `path` names."""
        if self._names is not None:
            return list(each_once(chain.from_iterable(self._names.values())))
        folder = Path(os.path.expanduser(self.path))
        if self.data_files is None:
            return sorted(path for path in folder.rglob("*") if path.is_file())
        base = folder if folder.is_dir() else Path()
        matches = chain.from_iterable(sorted(glob(str(base / each), recursive=True)) for each in self._patterns())
        paths = list(map(Path, matches))
        if odd := [path for path in paths if not (path.is_file() or path.is_dir())]:
            raise DataError(str(odd[0]), "is not a regular file", "name files of rows")
        return [path for path in paths if path.is_file()]

    def notes(self) -> list[str]:
        """Notes on what was left out of the files when they were read, and on what may be a mistake in them."""
        names = {path: others for each in (self._names or {}).values() for path, others in each.items()}
        return notes_on_copies(names, self._hashes)

    def _patterns(self) -> list[str]:
        named = self.data_files.values() if isinstance(self.data_files, dict) else [self.data_files]
        return list(chain.from_iterable([item] if isinstance(item, str) else item or [] for item in named))

    @cached_property
    def _names(self) -> dict[str, dict[Path, list[Path]]] | None:
        """The local files of each split, each with its other names; None if `path` is no format, or for the web."""
        if self.path not in FORMATS or any("://" in each for each in self._patterns()):
            return None
        named = self.data_files if isinstance(self.data_files, dict) else {"train": self.data_files}
        lists = {split: [each] if isinstance(each, str) else each or [] for split, each in named.items()}
        suffix = SUFFIX_OF_FORMAT[self.path]
        names = {split: each_once(find_files(each, suffix)) for split, each in lists.items()}
        if self.validation_split in names and self.split in names:  # a glob may match what is held out, too
            all_names = names[self.split]
            names[self.split] = {path: all_names[path] for path in without(all_names, names[self.validation_split])}
        return names

    def documents(self, split: Split, read: Callable[[str], Iterator[Document]]) -> Iterator[Document]:
        """The documents of a split in order. `read` gives all documents of one of the data set's own splits."""
        if self.validation_split is not None:
            return read(self.split if split == "train" else self.validation_split)
        return (
            document
            for i, document in enumerate(read(self.split))
            if is_held_out(i, self.validation_fraction) == (split == "validation")
        )

    def rows(self, split: str, *wanted: Sequence[str]) -> Iterator[Row]:
        """The rows of one of the data set's own splits, at least with the columns of `wanted`."""
        if self._names is not None:
            yield from _rows_of_splits(split, self.path, self._names, wanted, self.field)
            return
        try:
            is_here = self.path in FORMATS or self.local_files()
            with nullcontext() if is_here else hub.asked_once():
                reader = self._reader()
            file_format = _format_of(reader)
            files = {str(name): list(map(Path, named)) for name, named in (reader.config.data_files or {}).items()}
            if file_format not in FORMATS or not all(map(Path.is_file, chain.from_iterable(files.values()))):
                yield from self._rows_of_library(reader, split, wanted)
                return
        except DataError:
            raise
        except Exception as error:  # the library, its file systems and its parsers raise all kinds
            raise self._explained(error, split) from error
        yield from _rows_of_splits(split, file_format, files, wanted, self.field)

    def _reader(self, **options: Any) -> datasets.DatasetBuilder:
        # The library's cache identifies local files by name and date, ours by their contents.
        contents = hashlib.sha256("".join(self._hashes.values()).encode()).hexdigest()[:12] if self._hashes else ""
        cache = str(Path(datasets.config.HF_DATASETS_CACHE, contents))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about formats that are refused anyway
            path = os.path.expanduser(self.path)
            return datasets.load_dataset_builder(
                path, self.name, data_files=self.data_files, cache_dir=cache, **options
            )

    def _rows_of_library(self, reader: datasets.DatasetBuilder, split: str, wanted: Wanted) -> Iterator[Row]:
        if _format_of(reader) == "csv":  # otherwise it would guess which cells are numbers, and which are missing
            as_text = dict.fromkeys(chain.from_iterable(wanted), str)
            reader = self._reader(keep_default_na=False, na_filter=False, converters=as_text)
        if self.streaming:
            rows = reader.as_streaming_dataset(split=split)
        else:
            reader.download_and_prepare()
            rows = reader.as_dataset(split=split)
        if names := columns_to_read(rows.column_names or (), wanted):
            rows = rows.select_columns(names)
        numbers = count(1)
        for columns in rows.iter(batch_size=ROWS_AT_A_TIME):
            for values in zip(*columns.values(), strict=True):
                where = f"{self.path}, split {split}, record {next(numbers):,}"
                yield Row(where, dict(zip(columns, values, strict=True)))

    def _explained(self, error: Exception, split: str) -> DataError | InputOutputError:
        where = f"corpus.path {self.path}" + (f", data_files {self.data_files}" if self.data_files else "")
        causes = _causes(error)
        what = f"cannot read split {split}: {_first_line(causes[-1])}"
        if lost := next((cause for cause in causes if isinstance(cause, ConnectionError | TimeoutError)), None):
            what = f"cannot read split {split}: {_first_line(lost)}"
            offline = "without a network, bring the files of the data set here and name them in corpus.data_files"
            return InputOutputError(where, what, f"check the network and run it again; {offline}")
        cache = Path(datasets.config.HF_DATASETS_CACHE)
        named = [Path(str(cause.filename)) for cause in causes if isinstance(cause, OSError)]
        if any(path.is_relative_to(cache) or path in cache.parents for path in named):
            what = f"`datasets` cannot write its cache {cache} ({_first_line(causes[-1])})"
            return InputOutputError(where, what, "set HF_HOME to a folder that you may write to")
        if isinstance(causes[-1], ModuleNotFoundError):
            return DataError(where, what, f"`pip install {causes[-1].name}`, or download the files and name them")
        if any("://" in each for each in self._patterns()):
            return DataError(where, what, "download it, and name the file in corpus.data_files")
        return DataError(where, what, "check corpus.*")

    @cached_property
    def _hashes(self) -> dict[Path, str]:
        return hashes_of(self.local_files())


@dataclass
class HuggingFaceCorpus(DataSet):
    """One document per row: the text of column `text_field`. Rows without text are left out.

    Raises as a DataSet does, and DataError for a missing column.
    """

    kind = "hugging_face"

    text_field: str = "text"
    _n_without_text: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def pieces(self, split: Split) -> Iterator[Piece]:
        """The documents of a split in the order of the data set."""
        return chain.from_iterable(
            cut_into_pieces(text[i : i + PIECE_LENGTH] for i in range(0, len(text), PIECE_LENGTH))
            for text in self.documents(split, self._texts)
        )

    def notes(self) -> list[str]:
        """The notes on any data set, and the number of rows without text."""
        n = sum(self._n_without_text.values())
        return [*super().notes(), *([f"{n:,} row{'s' * (n > 1)} without text left out"] if n else [])]

    def _texts(self, split: str) -> Iterator[str]:
        n_without, columns, has_text = 0, dict[str, None](), False
        for where, values in self.rows(split, [self.text_field]):
            text = values.get(self.text_field)
            has_text = has_text or self.text_field in values
            columns |= {} if has_text else dict.fromkeys(values)
            if not isinstance(text, str | None):
                what = f"corpus.text_field {self.text_field} holds {type(text).__name__}, not text"
                raise DataError(where, what, "name a column of text, or write it in quotes")
            if text and not text.isspace():
                yield text
            else:
                n_without += 1
        if not has_text and columns:
            what = f"no such column in {self.path}"
            fix = f"name one of its columns: {', '.join(columns)}"
            raise DataError(f"corpus.text_field {self.text_field}", what, fix)
        self._n_without_text[split] = n_without


def _rows_of_splits(
    split: str, file_format: str, files: Mapping[str, Iterable[Path]], wanted: Wanted, key: str | None
) -> Iterator[Row]:
    """The rows of a split, or of a slice or a sum of splits such as `train[:10%]+dev`, or of all."""

    def rows(name: str) -> Iterator[Row]:
        return chain.from_iterable(rows_of_file(file, file_format, wanted, key) for file in files[name])

    if split in files:
        yield from rows(split)
        return
    try:
        spec = "+".join(files) if split == "all" else split
        slices = datasets.ReadInstruction.from_spec(spec)
        lengths = {name: sum(1 for _ in rows(name)) for name in files if name in spec}
        parts = slices.to_absolute(lengths)
    except (ValueError, AssertionError):
        fix = f"name one of {', '.join(files)}, or a slice such as train[:10%]"
        raise DataError(f"corpus.split {split}", "there is no such split", fix) from None
    for part in parts:
        yield from islice(rows(part.splitname), part.from_, part.to)


def _format_of(reader: datasets.DatasetBuilder) -> str:
    """The reader's format. ValueError for others of the library: some would be unpickled, which can run any code."""
    if (file_format := type(reader).__module__.rpartition(".")[2]) not in SAFE:
        raise ValueError(f"data in the format {file_format} is not read; Pellucid reads {', '.join(FORMATS)}")
    return file_format


def is_held_out(i: int, fraction: float) -> bool:
    """Whether document i is held out: every n-th one, so that their share stays close to the fraction."""
    return int((i + 1) * fraction) > int(i * fraction)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the original last: the library wraps errors in others that say less."""
    return [error, *(_causes(error.__cause__) if error.__cause__ else [])]


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [f"no data in it ({type(error).__name__})"]
    return lines[0].rstrip(".")

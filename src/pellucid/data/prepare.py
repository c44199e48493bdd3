"""From a corpus to token files on disk, once: what is prepared already is used again.

    <root>/<name>-<fingerprint>/   tokenizer.json   train.bin  train.documents.bin   val.bin  val.documents.bin
                                   val.nats.bin  val.skills.bin    where the truth is known (see `truth.py`)
                                   manifest.json    what the folder holds
                                   SHA256SUMS       a hash of each of these files

The fingerprint is a hash of all that decides the contents: the corpus, the tokenizer's settings, the format. The folder
is written under another name and renamed when it is whole and on the disk, so it is never seen half-written. It is
believed only while every byte is the one that was written: a flipped bit would train on other text.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import tokenizers
from filelock import FileLock
from tqdm import tqdm

from pellucid.config.base import Section
from pellucid.corpora.corpus import Corpus, KnownCorpus, Piece, Split
from pellucid.data.encoding import encode_batches
from pellucid.data.token_file import TokenFileWriter
from pellucid.data.truth import NATS_FILE, SKILLS_FILE, write_truth
from pellucid.errors import DataError, InputOutputError
from pellucid.files import sha256, written_whole
from pellucid.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

FORMAT_VERSION = 3
BATCH_BYTES = 1 << 19  # of UTF-8: as many characters may take four times the memory
FILE_OF_SPLIT: dict[Split, str] = {"train": "train.bin", "validation": "val.bin"}
TOKENIZER_FILE, MANIFEST_FILE, CHECKSUMS_FILE = "tokenizer.json", "manifest.json", "SHA256SUMS"
CHECKED_FILES = (TOKENIZER_FILE, MANIFEST_FILE, "train.bin", "train.documents.bin", "val.bin", "val.documents.bin")
TRUTH_FILES = (NATS_FILE, SKILLS_FILE)

TrainTokenizer = Callable[[Iterable[str], Iterable[str]], Tokenizer]


class SplitCounts(Section):
    """documents, tokens (of the text, and one end_of_text per document), and the text's UTF-8 bytes and characters."""

    documents: int
    tokens: int
    bytes: int
    characters: int


class Manifest(Section):
    """What a folder of prepared data holds.

    validation_nats: −log p of the validation documents under the corpus's own distribution, if that is known.
    skills: what it can take to predict a token, if that is known.
    """

    fingerprint: str
    format_version: int
    vocab_size: int
    train: SplitCounts
    validation: SplitCounts
    validation_nats: float | None
    skills: list[str]
    corpus: dict[str, object]
    tokenizer: dict[str, object]
    versions: dict[str, str]


def prepare(
    corpus: Corpus, train_tokenizer: TrainTokenizer, tokenizer_settings: dict[str, object], *, name: str, root: Path
) -> tuple[Path, Manifest]:
    """The folder with the corpus as tokens; written if it is missing or damaged.

    `train_tokenizer(train_texts, validation_texts)` is called only then. If several processes prepare the same data,
    one works and the others wait. Raises DataError for text or tokenizer, InputOutputError if the disk refuses.
    """
    fingerprint = fingerprint_of(corpus, tokenizer_settings)
    directory = root / f"{name}-{fingerprint}"
    if manifest := read_manifest(directory, fingerprint):
        return directory, manifest
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{directory.name}.lock"):  # which the system frees even if its holder is killed
            if manifest := read_manifest(directory, fingerprint):
                return directory, manifest
            if directory.exists():
                _log.warning("%s is not what was written there; preparing it again", directory)
            with written_whole(directory) as draft:
                draft.mkdir()
                manifest = _write(draft, corpus, train_tokenizer, tokenizer_settings, fingerprint)
            return directory, manifest
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputOutputError(str(root), f"cannot write prepared data ({reason})", "fix the disk") from error


def fingerprint_of(corpus: Corpus, tokenizer_settings: dict[str, object]) -> str:
    """12 hexadecimal digits that change with anything that decides the tokens."""
    decides = {"corpus": corpus.identity, "tokenizer": tokenizer_settings, "format_version": FORMAT_VERSION}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]


def read_manifest(directory: Path, fingerprint: str) -> Manifest | None:
    """The manifest of a folder whose files are, byte for byte, what was written; None for any other.

    The checksums are not interpreted, so they cannot deceive: they are made again, and must be the same text.
    """
    try:
        if (directory / CHECKSUMS_FILE).read_bytes() != _checksums(directory):
            return None
        manifest = Manifest.model_validate_json((directory / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return manifest if manifest.fingerprint == fingerprint else None


def _write(
    draft: Path,
    corpus: Corpus,
    train_tokenizer: TrainTokenizer,
    tokenizer_settings: dict[str, object],
    fingerprint: str,
) -> Manifest:
    def texts(split: Split, doing: str) -> Iterator[str]:
        return (piece.text for piece in _with_bar(corpus.pieces(split), f"{doing} {split} text"))

    tokenizer = train_tokenizer(*(texts(split, "learning tokens from") for split in FILE_OF_SPLIT))
    tokenizer.save(draft / TOKENIZER_FILE)
    counts = {
        split: write_split(corpus.pieces(split), tokenizer, draft / file, name=split)
        for split, file in FILE_OF_SPLIT.items()
    }
    nats, skills = None, list[str]()
    if isinstance(corpus, KnownCorpus) and tokenizer.has_words:
        nats = write_truth(corpus, tokenizer, texts("validation", "writing the truth about"), draft)
        skills = list(corpus.skills)
    manifest = Manifest(
        fingerprint=fingerprint,
        format_version=FORMAT_VERSION,
        vocab_size=tokenizer.vocab_size,
        train=counts["train"],
        validation=counts["validation"],
        validation_nats=nats,
        skills=skills,
        corpus=corpus.identity,
        tokenizer=tokenizer_settings,
        versions={"tokenizers": tokenizers.__version__, "python": platform.python_version()},
    )
    (draft / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (draft / CHECKSUMS_FILE).write_bytes(_checksums(draft))
    return manifest


def write_split(pieces: Iterable[Piece], tokenizer: Tokenizer, path: Path, *, name: str) -> SplitCounts:
    """Writes a token file and counts what is in it. DataError if there is no document."""
    batches = _batches(_with_bar(pieces, f"writing {name} tokens"))
    n_documents = n_bytes = n_characters = 0
    with TokenFileWriter(path, vocab_size=tokenizer.vocab_size, end_of_text=tokenizer.end_of_text) as writer:
        for batch, ids_of_batch in encode_batches(tokenizer, batches):
            for piece, ids in zip(batch, ids_of_batch, strict=True):
                writer.append(ids)
                if piece.ends_document:
                    writer.end_document()
                n_documents += piece.ends_document
                n_characters += len(piece.text)
                n_bytes += len(piece.text.encode())
    if n_documents == 0:
        raise DataError(f"the {name} split", "holds no text", "give the corpus more text, or hold out another share")
    return SplitCounts(documents=n_documents, tokens=writer.n_tokens - 1, bytes=n_bytes, characters=n_characters)


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    n_bytes = 0
    for piece in pieces:
        batch.append(piece)
        n_bytes += len(piece.text.encode())
        if n_bytes >= BATCH_BYTES:
            yield batch
            batch, n_bytes = [], 0
    yield batch


def _with_bar(pieces: Iterable[Piece], title: str) -> Iterator[Piece]:
    """The same pieces, while a terminal shows how many bytes have gone by."""
    with tqdm(desc=title, unit="B", unit_scale=True, disable=None) as bar:
        for piece in pieces:
            bar.update(len(piece.text.encode()))
            yield piece
            del piece  # while the next one is read, it need not stay in memory


def _checksums(directory: Path) -> bytes:
    """The SHA-256 of each file, as `sha256sum` prints it."""
    files = [*CHECKED_FILES, *(file for file in TRUTH_FILES if (directory / file).exists())]
    return "".join(f"{sha256(directory / file)}  {file}\n" for file in files).encode()

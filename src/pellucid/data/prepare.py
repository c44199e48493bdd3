"""Prepares a corpus as token files on disk, once: prepared data is used again.

    <root>/<name>-<fingerprint>/   tokenizer.json   train.bin  train.documents.bin   val.bin  val.documents.bin
                                   train.targets.bin  val.targets.bin    of conversations (see `conversations.py`)
                                   val.nats.bin  val.skills.bin    where the truth is known (see `truth.py`)
                                   manifest.json    what the folder holds
                                   SHA256SUMS       a hash of each of these files

The fingerprint is a hash of all that decides the contents: the corpus, the tokenizer's settings, the format. The folder
is written under another name and renamed when it is complete and on disk, so it is never seen half-written. It is used
only while all its checksums match: a flipped bit would mean training on other text.
"""

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
from pellucid.corpora.corpus import ConversationCorpus, Corpus, KnownConversations, Piece, Split
from pellucid.corpora.drawn import Drawn
from pellucid.data.encoding import encode_pieces
from pellucid.data.token_file import TokenFile, TokenFileWriter
from pellucid.data.token_truth import NATS_FILE, SKILLS_FILE
from pellucid.errors import DataError, InputOutputError
from pellucid.files import read_at_most, sha256, written_whole
from pellucid.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

FORMAT_VERSION = 3
FILE_OF_SPLIT: dict[Split, str] = {"train": "train.bin", "validation": "val.bin"}
TOKENIZER_FILE, MANIFEST_FILE, CHECKSUMS_FILE = "tokenizer.json", "manifest.json", "SHA256SUMS"
CHECKED_FILES = (TOKENIZER_FILE, MANIFEST_FILE, "train.bin", "train.documents.bin", "val.bin", "val.documents.bin")
MAX_CHECKSUMS = 1 << 16  # bytes of that file
OPTIONAL_FILES = ("train.targets.bin", "val.targets.bin", NATS_FILE, SKILLS_FILE)

TimesOfFiles = dict[Path, tuple[int, int, int]]  # size, time of the last edit, time of the last change of any kind
TrainTokenizer = Callable[[Iterable[str], Iterable[str]], Tokenizer]


class SplitCounts(Section):
    """Counts of documents, tokens (with an end_of_text per document), UTF-8 bytes and characters of a split.

    For conversations, bytes and characters are those of the answers.
    """

    documents: int
    tokens: int
    bytes: int
    characters: int


class Manifest(Section):
    """manifest.json: the contents of a folder of prepared data.

    validation_nats: −log p of the validation documents under the corpus's own distribution, if known.
    skills: the skills that predicting a token can take, if known.
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
    """The folder with the corpus as tokens, and its manifest; written if it is missing or damaged.

    Only then is `train_tokenizer(train_texts, validation_texts)` called. If several processes prepare the same data,
    one works and the others wait. Raises DataError for text or tokenizer, InputOutputError for disk errors.
    """
    files, identity = _times_of_files(corpus), corpus.identity
    fingerprint = fingerprint_of(identity, tokenizer_settings)
    directory = root / f"{name}-{fingerprint}"
    if manifest := read_manifest(directory, fingerprint):
        return directory, manifest
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{directory.name}.lock"):  # freed by the system even if its holder is killed
            if manifest := read_manifest(directory, fingerprint):
                return directory, manifest
            if directory.exists():
                _log.warning("%s is not what was written there; preparing it again", directory)
            with written_whole(directory) as draft:
                draft.mkdir()
                manifest = _write(draft, corpus, identity, train_tokenizer, tokenizer_settings)
                if _times_of_files(corpus) != files:
                    fix = "prepare it again, and leave it alone meanwhile"
                    raise DataError("the corpus", "was changed while it was read", fix)
                _say_what_is_in_it(corpus, manifest)
            return directory, manifest
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputOutputError(str(root), f"cannot write prepared data ({reason})", "fix the disk") from error


def _say_what_is_in_it(corpus: Corpus, manifest: Manifest) -> None:
    """One line on how many documents there are, what was left out, and why."""
    if isinstance(corpus, Drawn | KnownConversations):
        return  # it was written here
    n_files, n, notes = len(corpus.local_files()), manifest.train.documents, corpus.notes()
    files = f"{n_files:,} file{'s' * (n_files > 1)}: " if n_files else ""
    counts = f"{n:,} document{'s' * (n != 1)} to train on, {manifest.validation.documents:,} held out"
    _log.log(logging.WARNING if notes else logging.INFO, "%s%s", files, "; ".join([counts, *notes]))


def fingerprint_of(identity: dict[str, object], tokenizer_settings: dict[str, object]) -> str:
    """A hash (12 hexadecimal digits) of everything that decides the tokens: the corpus's identity, and the settings."""
    decides = {"corpus": identity, "tokenizer": tokenizer_settings, "format_version": FORMAT_VERSION}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]


def read_manifest(directory: Path, fingerprint: str) -> Manifest | None:
    """The manifest of a folder whose files all match their checksums; None for any other.

    The checksums file is not parsed, so it cannot mislead: it is computed again, and must be the same text.
    """
    try:
        if read_at_most(directory / CHECKSUMS_FILE, MAX_CHECKSUMS) != _checksums(directory):
            return None
        manifest = Manifest.model_validate_json((directory / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return manifest if manifest.fingerprint == fingerprint else None


def _write(
    draft: Path,
    corpus: Corpus,
    identity: dict[str, object],
    train_tokenizer: TrainTokenizer,
    tokenizer_settings: dict[str, object],
) -> Manifest:
    tokenizer = train_tokenizer(*(_texts(corpus, split, "learning tokens from") for split in FILE_OF_SPLIT))
    if corpus.is_text != tokenizer.is_text:
        what = f"its vocabulary is of {'text' if tokenizer.is_text else 'ids'}, and the corpus is not"
        raise DataError("tokenizer", what, "use ids with a vocabulary of ids, and text with one of text")
    if isinstance(corpus, ConversationCorpus):
        tokenizer = tokenizer.with_chat_tokens()
    tokenizer.save(draft / TOKENIZER_FILE)
    counts = {split: write_split(corpus, split, tokenizer, draft / file) for split, file in FILE_OF_SPLIT.items()}
    if identity.get("thoughts") == "tool" and isinstance(corpus, Drawn):
        from pellucid.data.conversations import write_own_tokens  # few languages have a tool

        write_own_tokens(corpus, tokenizer, {split: draft / file for split, file in FILE_OF_SPLIT.items()})
    nats, skills = _write_truth_if_known(draft, corpus, tokenizer)
    manifest = Manifest(
        fingerprint=fingerprint_of(identity, tokenizer_settings),
        format_version=FORMAT_VERSION,
        vocab_size=tokenizer.vocab_size,
        train=counts["train"],
        validation=counts["validation"],
        validation_nats=nats,
        skills=skills,
        corpus=identity,
        tokenizer=tokenizer_settings,
        versions={"tokenizers": tokenizers.__version__, "python": platform.python_version()},
    )
    (draft / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (draft / CHECKSUMS_FILE).write_bytes(_checksums(draft))
    return manifest


def write_split(corpus: Corpus, split: Split, tokenizer: Tokenizer, path: Path) -> SplitCounts:
    """Write a split as a token file, and count its contents. DataError if there is no document."""
    if isinstance(corpus, ConversationCorpus):
        from pellucid.data.conversations import write_conversations  # only where there are any

        n_bytes, n_characters = write_conversations(corpus.conversations(split), tokenizer, path)
    else:
        pieces = _with_bar(corpus.pieces(split), f"writing {split} tokens")
        n_bytes, n_characters = _write_pieces(pieces, tokenizer, path)
    written = TokenFile.open(path, tokenizer.vocab_size)
    if len(written.boundaries) == 1:
        raise DataError(f"the {split} split", "holds no text", "give the corpus more text, or hold out another share")
    return SplitCounts(
        documents=len(written.boundaries) - 1, tokens=written.n_targets, bytes=n_bytes, characters=n_characters
    )


def _write_pieces(pieces: Iterable[Piece], tokenizer: Tokenizer, path: Path) -> tuple[int, int]:
    """Write a token file of these documents. Returns the numbers of UTF-8 bytes and of characters in them."""
    n_bytes = n_characters = 0
    with TokenFileWriter(path, vocab_size=tokenizer.vocab_size, end_of_text=tokenizer.end_of_text) as writer:
        for encoded in encode_pieces(tokenizer, pieces):
            writer.append(encoded.tokens, encoded.ends)
            n_bytes += encoded.n_bytes
            n_characters += encoded.n_characters
    return n_bytes, n_characters


def _write_truth_if_known(draft: Path, corpus: Corpus, tokenizer: Tokenizer) -> tuple[float | None, list[str]]:
    """Write the truth of the validation text, if known. Returns its sum of nats, and the names of the skills."""
    if not (tokenizer.has_words and isinstance(corpus, Drawn | KnownConversations)):
        return None, []
    from pellucid.data.truth import truth_of_answers, truth_of_texts, write_truth  # only where it is known

    if isinstance(corpus, Drawn):
        truths = truth_of_texts(corpus.language, tokenizer, _texts(corpus, "validation", "writing the truth about"))
        return write_truth(truths, draft), list(corpus.language.skills)
    conversations = corpus.conversations("validation")
    return write_truth(truth_of_answers(corpus, tokenizer, conversations), draft), list(corpus.skills)


def _times_of_files(corpus: Corpus) -> TimesOfFiles:
    """Sizes and times of the corpus's files, which show edits, even undone ones, without reading the files."""
    stats = ((file, file.stat()) for file in corpus.local_files() if file.exists())
    return {file: (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for file, stat in stats}


def _texts(corpus: Corpus, split: Split, doing: str) -> Iterator[str]:
    return (piece.text for piece in _with_bar(corpus.pieces(split), f"{doing} {split} text"))


def _with_bar(pieces: Iterable[Piece], title: str) -> Iterator[Piece]:
    """Yield the pieces, with a progress bar of their bytes."""
    with tqdm(desc=title, unit="B", unit_scale=True, disable=None) as bar:
        for piece in pieces:
            bar.update(len(piece.text.encode()))
            yield piece
            del piece  # free its memory while the next one is read


def _checksums(directory: Path) -> bytes:
    return checksums(directory, [*CHECKED_FILES, *(file for file in OPTIONAL_FILES if (directory / file).exists())])


def is_intact(directory: Path, files: Iterable[str]) -> bool:
    """Whether the files of a folder are there, and are what their checksums say."""
    try:
        return read_at_most(directory / CHECKSUMS_FILE, MAX_CHECKSUMS) == checksums(directory, files)
    except OSError:
        return False


def checksums(directory: Path, files: Iterable[str]) -> bytes:
    """The SHA-256 of each file, as `sha256sum` prints it."""
    return "".join(f"{sha256(directory / file)}  {file}\n" for file in files).encode()

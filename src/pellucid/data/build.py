"""Builds prepared data and batches from a run config."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pellucid.config.data import CONVERSATIONS
from pellucid.config.run import RunConfig
from pellucid.corpora.build import DOWNLOADS, build_corpus
from pellucid.corpora.corpus import ConversationCorpus, Corpus, Piece
from pellucid.corpora.text_files import text_file_pieces
from pellucid.data.batches import Batches
from pellucid.data.encoding import encode_parts
from pellucid.data.prepare import FILE_OF_SPLIT, TOKENIZER_FILE, Manifest, fingerprint_of, prepare, read_manifest
from pellucid.data.token_file import TokenFile
from pellucid.data.truth import TokenTruth
from pellucid.errors import CheckpointError, DataError, PellucidError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import tokenizer_settings, train_tokenizer
from pellucid.tokenizer.tokenizer import CHAT_TOKENS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """A corpus as training and evaluation need it: tokenizer, token files, and the truth, if known."""

    directory: Path
    manifest: Manifest
    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    truth: TokenTruth | None  # of the validation tokens

    @property
    def fingerprint(self) -> str:
        """A hash of corpus, tokenizer settings and format: equal fingerprints mean equal tokens."""
        return self.manifest.fingerprint

    @property
    def validation_floor_nats_per_token(self) -> float | None:
        """The least validation loss that any model can reach, where the truth is known (equation 18)."""
        nats = self.manifest.validation_nats
        return None if nats is None else nats / self.validation.n_losses


def prepare_data(config: RunConfig, data_root: Path) -> PreparedData:
    """Prepare a run's data under `data_root`: train the tokenizer and write the token files, unless they exist.

    DataError: text that cannot be read or encoded; InputOutputError: disk errors.
    """
    corpus, settings = _what_decides_tokens(config, data_root)
    train = partial(train_tokenizer, config.tokenizer)
    return _opened(*prepare(corpus, train, settings, name=config.corpus.type, root=data_root))


def fingerprint_now(config: RunConfig, data_root: Path) -> str:
    """The fingerprint that a run's data would have if it were prepared now. Raises as `prepare_data` does."""
    corpus, settings = _what_decides_tokens(config, data_root)
    return fingerprint_of(corpus.identity, settings)


def _what_decides_tokens(config: RunConfig, data_root: Path) -> tuple[Corpus, dict[str, object]]:
    corpus = build_corpus(config.corpus, data_root / DOWNLOADS.name)
    return corpus, tokenizer_settings(config.tokenizer, for_chat=isinstance(corpus, ConversationCorpus))


def data_of_run(config: RunConfig, fingerprint: str, data_root: Path) -> PreparedData | None:
    """The tokens that a run was trained on: found in `data_root`, even if its corpus has changed, or prepared again.

    None if they are gone and the corpus has changed. Raises as `prepare_data` does.
    """
    directory = data_root / f"{config.corpus.type}-{fingerprint}"
    manifest = read_manifest(directory, fingerprint)
    if manifest is None:
        data = prepare_data(config, data_root)
        return data if data.fingerprint == fingerprint else None
    is_unchanged = False
    with suppress(PellucidError):
        corpus = build_corpus(config.corpus, data_root / DOWNLOADS.name)
        is_unchanged = fingerprint_of(corpus.identity, manifest.tokenizer) == fingerprint
    if not is_unchanged:
        _log.warning("the corpus has changed since training; the tokens of then are used, in %s", directory)
    return _opened(directory, manifest)


def corpus_of_run(config: RunConfig, tokenizer: Tokenizer, fingerprint: str) -> Corpus:
    """The corpus that a run was trained on: its truth is the only one by which the run may be judged.

    tokenizer, fingerprint: as the checkpoint has them. CheckpointError if the corpus is another one now; DataError if
    it cannot be read.
    """
    corpus = build_corpus(config.corpus)
    if fingerprint_of(corpus.identity, tokenizer_settings(config.tokenizer, of_run=tokenizer)) != fingerprint:
        fix = "bring back the files, or the version of Pellucid, that it was trained with, or train again"
        raise CheckpointError(f"run {config.name}", "its corpus has changed since training", fix)
    return corpus


def text_as_tokens(file: Path, tokenizer: Tokenizer) -> TokenFile:
    """The tokens of a text file, or of all that match a glob, in memory; each file is a document.

    DataError if it is not UTF-8 text, empty, or cannot be encoded.
    """
    pieces = list(text_file_pieces(file))
    if not pieces:
        raise DataError(str(file), "holds no text", "name a file with text in it")
    return pieces_as_tokens(str(file), pieces, tokenizer)


def pieces_as_tokens(name: str, pieces: Sequence[Piece], tokenizer: Tokenizer) -> TokenFile:
    """The tokens of these pieces, in memory. DataError if they cannot be encoded."""
    encoded = [each.tokens for each in encode_parts(tokenizer, [pieces])]
    tokens = np.concatenate([np.array([tokenizer.end_of_text], encoded[0].dtype), *encoded])
    return TokenFile(name, tokens, np.flatnonzero(tokens == tokenizer.end_of_text))


def _opened(directory: Path, manifest: Manifest) -> PreparedData:
    return PreparedData(
        directory,
        manifest,
        Tokenizer.load(directory / TOKENIZER_FILE),
        TokenFile.open(directory / FILE_OF_SPLIT["train"], manifest.vocab_size),
        TokenFile.open(directory / FILE_OF_SPLIT["validation"], manifest.vocab_size),
        TokenTruth.open(directory, manifest.skills) if manifest.skills else None,
    )


def vocab_size_of(config: RunConfig) -> int:
    """The vocabulary's size, known before the data is prepared; a small corpus may give fewer byte pairs.

    A character vocabulary is counted in its corpus. Conversations add their control tokens.
    """
    is_chat = config.corpus.type in CONVERSATIONS
    if config.tokenizer.type == "bpe":
        missing = set(CHAT_TOKENS) - set(config.tokenizer.special_tokens) if is_chat else ()
        return config.tokenizer.vocab_size + len(missing)
    if config.tokenizer.type == "file":  # its corpus is not read, and an imported run has none
        tokenizer = train_tokenizer(config.tokenizer, [], [])
    else:
        corpus = build_corpus(config.corpus)
        train, validation = ((piece.text for piece in corpus.pieces(split)) for split in FILE_OF_SPLIT)
        tokenizer = train_tokenizer(config.tokenizer, train, validation)
    return (tokenizer.with_chat_tokens() if is_chat else tokenizer).vocab_size


def build_batches(config: RunConfig, data: PreparedData) -> Batches:
    """The training batches of a run; all of one width for a compiled model, which each new width would recompile."""
    return Batches(
        data.train,
        config.model.context_length,
        config.train.batch_size,
        seed=config.seed,
        packing=config.data.packing,
        batches_per_update=config.train.gradient_accumulation_steps,
        full_width=config.train.compile,
    )

"""A corpus as tokens, ready to use: read from its folder, or made of a few texts in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pellucid.config.data import CorpusConfig, TokenizerConfig
from pellucid.corpora.build import DOWNLOADS, build_corpus
from pellucid.corpora.corpus import ConversationCorpus, Corpus, Piece
from pellucid.data.encoding import encode_pieces
from pellucid.data.prepare import FILE_OF_SPLIT, TOKENIZER_FILE, Manifest, prepare
from pellucid.data.token_file import TokenFile
from pellucid.data.truth import TokenTruth
from pellucid.errors import DataError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import tokenizer_settings, train_tokenizer


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


def prepared(text: CorpusConfig, tokenizer: TokenizerConfig, root: Path) -> PreparedData:
    """Corpus, tokenizer and tokens, in a folder under `root`: trained and written, unless they exist.

    DataError: text that cannot be read or encoded; InputOutputError: disk errors.
    """
    corpus, settings = what_decides_tokens(text, tokenizer, root)
    return opened(*prepare(corpus, partial(train_tokenizer, tokenizer), settings, name=text.type, root=root))


def what_decides_tokens(text: CorpusConfig, tokenizer: TokenizerConfig, root: Path) -> tuple[Corpus, dict[str, object]]:
    """The corpus, and the settings of the tokenizer."""
    corpus = build_corpus(text, root / DOWNLOADS.name)
    return corpus, tokenizer_settings(tokenizer, for_chat=isinstance(corpus, ConversationCorpus))


def opened(directory: Path, manifest: Manifest) -> PreparedData:
    """Open the folder that `prepare` has written."""
    return PreparedData(
        directory,
        manifest,
        Tokenizer.load(directory / TOKENIZER_FILE),
        TokenFile.open(directory / FILE_OF_SPLIT["train"], manifest.vocab_size),
        TokenFile.open(directory / FILE_OF_SPLIT["validation"], manifest.vocab_size),
        TokenTruth.open(directory, manifest.skills) if manifest.skills else None,
    )


def text_as_tokens(file: Path, tokenizer: Tokenizer) -> TokenFile:
    """The tokens of a text file, or of all that match a glob, in memory; each file is a document.

    DataError if it is not UTF-8 text, empty, or cannot be encoded.
    """
    from pellucid.corpora.text_files import text_file_pieces  # else every run would load it

    pieces = list(text_file_pieces(file))
    if not pieces:
        raise DataError(str(file), "holds no text", "name a file with text in it")
    return pieces_as_tokens(str(file), pieces, tokenizer)


def pieces_as_tokens(name: str, pieces: Sequence[Piece], tokenizer: Tokenizer) -> TokenFile:
    """The tokens of these pieces, in memory. DataError if they cannot be encoded."""
    encoded = [each.tokens for each in encode_pieces(tokenizer, pieces)]
    tokens = np.concatenate([np.array([tokenizer.end_of_text], encoded[0].dtype), *encoded])
    return TokenFile(name, tokens, np.flatnonzero(tokens == tokenizer.end_of_text))

"""A corpus as tokens, ready to use: read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.config.data import CorpusConfig, TokenizerConfig
from pellucid.corpora.build import DOWNLOADS, build_corpus
from pellucid.corpora.corpus import ConversationCorpus, Corpus
from pellucid.data.prepare import FILE_OF_SPLIT, TOKENIZER_FILE, Manifest, prepare
from pellucid.data.token_file import TokenFile
from pellucid.data.token_truth import TokenTruth
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import tokenizer_settings, train_tokenizer

if TYPE_CHECKING:
    from pellucid.data.scale import Scale  # which only texts without a known floor need


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

    @cached_property
    def scale(self) -> Scale | None:
        """The rungs of a counter and of xz (seconds, once). None for answers, and where a floor is known."""
        if self.truth is not None or self.train.is_target is not None:
            return None
        from pellucid.data.scale import scale_of

        return scale_of(self.directory, self.train, self.validation, self.tokenizer)


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

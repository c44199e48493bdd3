"""From a run config to prepared data and to batches: the one place where data reads config."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pellucid.config.run import RunConfig
from pellucid.corpora.build import DOWNLOADS, build_corpus
from pellucid.data.batches import Batches
from pellucid.data.prepare import FILE_OF_SPLIT, TOKENIZER_FILE, Manifest, prepare
from pellucid.data.token_file import TokenFile
from pellucid.data.truth import TokenTruth
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import train_tokenizer


@dataclass(frozen=True)
class PreparedData:
    """All that training and evaluation need of a corpus."""

    directory: Path
    manifest: Manifest
    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    truth: TokenTruth | None  # of the validation tokens

    @property
    def fingerprint(self) -> str:
        """Of corpus, tokenizer settings and format: equal fingerprints, equal tokens."""
        return self.manifest.fingerprint

    @property
    def validation_floor_nats_per_token(self) -> float | None:
        """The least loss on the validation part that any model can reach, where the truth is known (equation 18)."""
        nats = self.manifest.validation_nats
        return None if nats is None else nats / self.validation.n_targets


def prepare_data(config: RunConfig, data_root: Path, progress: bool) -> PreparedData:
    """Corpus to tokenizer to token files under `data_root`, or the ones that are there already.

    DataError: text that cannot be read or encoded; InputOutputError: the disk refuses.
    """
    directory, manifest = prepare(
        build_corpus(config.corpus, data_root / DOWNLOADS.name),
        partial(train_tokenizer, config.tokenizer),
        config.tokenizer.model_dump(mode="json"),
        name=config.corpus.type,
        root=data_root,
        progress=progress,
    )
    return PreparedData(
        directory,
        manifest,
        Tokenizer.load(directory / TOKENIZER_FILE),
        TokenFile.open(directory / FILE_OF_SPLIT["train"], manifest.vocab_size),
        TokenFile.open(directory / FILE_OF_SPLIT["validation"], manifest.vocab_size),
        TokenTruth.open(directory, manifest.skills) if manifest.skills else None,
    )


def vocab_size_of(config: RunConfig) -> int:
    """What the config says, though a small corpus may give fewer; a character vocabulary is read from its corpus."""
    if config.tokenizer.type == "bpe":
        return config.tokenizer.vocab_size
    corpus = build_corpus(config.corpus)
    train, validation = ((piece.text for piece in corpus.pieces(split)) for split in FILE_OF_SPLIT)
    return train_tokenizer(config.tokenizer, train, validation).vocab_size


def build_batches(config: RunConfig, data: PreparedData, rank: int = 0, n_ranks: int = 1) -> Batches:
    """The training batches of a run."""
    return Batches(
        data.train,
        config.model.context_length,
        config.train.batch_size,
        seed=config.seed,
        packing=config.data.packing,
        rank=rank,
        n_ranks=n_ranks,
    )

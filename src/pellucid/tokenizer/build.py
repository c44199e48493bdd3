"""Trains a tokenizer on text, as the `tokenizer` section of a config says."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from typing_extensions import assert_never

from pellucid.config.data import BytePairConfig, CharacterConfig, FileTokenizerConfig, IdsConfig, TokenizerConfig
from pellucid.errors import DataError
from pellucid.files import require_regular
from pellucid.tokenizer.tokenizer import WORD, Tokenizer, require_unicode
from pellucid.tokenizer.train import train_byte_pairs, train_characters, vocabulary_of_ids

BYTES_PER_MEGABYTE = 1_000_000
# Learning keeps every distinct word in memory, at some 70 bytes per byte. 32 MB of ordinary text stay far below this;
# text without blanks, where no word occurs twice, would need gigabytes.
DISTINCT_BYTES = 8_000_000


def train_tokenizer(config: TokenizerConfig, train_texts: Iterable[str], validation_texts: Iterable[str]) -> Tokenizer:
    """Train byte pairs on the training texts; take the characters, or ids, in both; or read a tokenizer file.

    The texts are read once and may be streams; each may be a piece of a document, cut at the end of a word.
    """
    train_texts, validation_texts = (map(require_unicode, texts) for texts in (train_texts, validation_texts))
    match config:
        case BytePairConfig():
            return train_byte_pairs(
                start_of(train_texts, config.training_megabytes * BYTES_PER_MEGABYTE),
                # The library sets memory aside for each token asked for, and no text gives more tokens than bytes.
                vocab_size=min(config.vocab_size, DISTINCT_BYTES),
                special_tokens=config.special_tokens,
            )
        case CharacterConfig():
            return train_characters(chain(train_texts, validation_texts), special_tokens=config.special_tokens)
        case IdsConfig():
            texts, n_ids = chain(train_texts, validation_texts), config.n_ids
            return vocabulary_of_ids(texts, n_ids=n_ids, special_tokens=config.special_tokens)
        case FileTokenizerConfig():
            return Tokenizer.load(Path(config.path))
        case _:
            assert_never(config)


def tokenizer_settings(
    config: TokenizerConfig, *, for_chat: bool = False, of_run: Tokenizer | None = None
) -> dict[str, object]:
    """All settings that decide a corpus's tokens, for its fingerprint; for a file, the hash of its contents.

    for_chat: with the control tokens of conversations, which a file may lack. of_run: the tokenizer of a trained run,
    whose file need not be there any more. DataError: no such file.
    """
    if not isinstance(config, FileTokenizerConfig):
        return config.model_dump(mode="json")
    if of_run is not None:
        return _settings_of_file(config, of_run)
    try:
        require_regular(Path(config.path))
        Path(config.path).open("rb").close()
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise DataError("tokenizer.path", f"{config.path!r} {what}", "name a tokenizer.json") from None
    tokenizer = Tokenizer.load(Path(config.path))
    return _settings_of_file(config, tokenizer.with_chat_tokens() if for_chat else tokenizer)


def _settings_of_file(config: FileTokenizerConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """Settings with the hash of the vocabulary as a run stores it: other programs format the file differently."""
    return {"type": config.type, "sha256": hashlib.sha256(tokenizer.to_json().encode()).hexdigest()}


def start_of(texts: Iterable[str], n_bytes: int) -> Iterator[str]:
    """The first texts that fit into `n_bytes` of UTF-8, and into DISTINCT_BYTES of distinct words."""
    seen: set[str] = set()
    n_distinct_bytes = 0
    for text in texts:
        new = set(WORD.findall(text)) - seen
        n_distinct_bytes += sum(len(word.encode()) for word in new)
        n_bytes -= len(text.encode())
        if n_bytes < 0 or n_distinct_bytes > DISTINCT_BYTES:
            return
        seen |= new
        yield text

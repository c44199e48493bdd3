"""Soft targets: the true distribution of each token of the training text, computed once and kept beside it.

    train.truth/   ids.bin   p.bin    the tokens that are possible, place after place, and their probabilities
                   ends.bin           where each place's tokens end in these two
                   SHA256SUMS         a hash of each

Ids are as in the token file, probabilities little-endian float32, ends little-endian int64. Place i is the target
tokens[i + 1]. All are read through memory maps, so they may be larger than memory.

Shapes: B rows of a batch, T positions, K: as many tokens as are possible at one of its places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pellucid.data.packing import Integers
from pellucid.data.prepare import CHECKSUMS_FILE, checksums, is_intact
from pellucid.data.token_file import token_type
from pellucid.data.truth import UNWRITABLE, Distribution, next_token_distributions, normalized
from pellucid.errors import ConfigError
from pellucid.files import written_whole
from pellucid.languages.language import Language
from pellucid.languages.symbols import END, SymbolLanguage
from pellucid.tokenizer import Tokenizer

FOLDER = "train.truth"
TYPES = {"ids.bin": "", "p.bin": "<f4", "ends.bin": "<i8"}


@dataclass(frozen=True)
class SoftTargets:
    """The distributions of some places. Those of place i are ids[ends[i - 1] : ends[i]], and p in the same way."""

    ids: NDArray[np.unsignedinteger]
    p: NDArray[np.float32]
    ends: Integers

    @classmethod
    def of(cls, distributions: Iterable[Distribution], vocab_size: int) -> SoftTargets:
        """These distributions, in memory. What the vocabulary cannot write is left out: no text has it."""
        possible = [normalized({id_: p for id_, p in each.items() if id_ != UNWRITABLE}) for each in distributions]
        return cls(
            np.array([id_ for each in possible for id_ in each], token_type(vocab_size)),
            np.array([p for each in possible for p in each.values()], np.float32),
            np.cumsum([len(each) for each in possible], dtype=np.int64),
        )

    @classmethod
    def open(cls, folder: Path, vocab_size: int) -> SoftTargets:
        """Map the files of a folder into memory."""
        types = (type_ or token_type(vocab_size) for type_ in TYPES.values())
        files = zip(TYPES, types, strict=True)
        return cls(*(np.asarray(np.memmap(folder / file, dtype=type_, mode="r")) for file, type_ in files))

    def at(self, places_BT: Integers) -> tuple[Integers, NDArray[np.float32]]:
        """The possible tokens at these places, and their probabilities: (B, T, K) each. Padding has the place -1.

        Where there are fewer than K, the others are token 0 with probability 0.
        """
        ends_BT1 = self.ends[places_BT][..., None]
        starts_BT1 = np.where(places_BT > 0, self.ends[places_BT - 1], 0)[..., None]
        n_BT1 = np.where(places_BT[..., None] < 0, 0, ends_BT1 - starts_BT1)
        k = np.arange(max(1, n_BT1.max()))
        is_possible_BTK = k < n_BT1
        where_BTK = np.where(is_possible_BTK, starts_BT1 + k, 0)
        return np.where(is_possible_BTK, self.ids[where_BTK], 0).astype(np.int64), self.p[where_BTK] * is_possible_BTK


def soft_targets_of(directory: Path, language: Language, tokenizer: Tokenizer, texts: Iterator[str]) -> SoftTargets:
    """The true distributions of all tokens of these documents, in the order of their token file.

    They are kept in `directory`, and computed again if they are missing or damaged.
    """
    folder = directory / FOLDER
    with FileLock(directory / f".{FOLDER}.lock"):  # one process computes, the others wait
        if not is_intact(folder, TYPES):
            with written_whole(folder) as draft:
                draft.mkdir()
                write(draft, (distributions_of(language, tokenizer, text) for text in texts), tokenizer)
                (draft / CHECKSUMS_FILE).write_bytes(checksums(draft, TYPES))
    return SoftTargets.open(folder, tokenizer.vocab_size)


def write(folder: Path, documents: Iterable[Iterable[Distribution]], tokenizer: Tokenizer) -> None:
    """Write the distributions of some documents, one after the other."""
    n = 0
    with ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in TYPES]
        for document in documents:
            found = SoftTargets.of(document, tokenizer.vocab_size)
            parts: Sequence[NDArray[Any]] = (found.ids, found.p, found.ends + n)
            for file, values in zip(files, parts, strict=True):
                file.write(values.tobytes())
            n += len(found.ids)


def distributions_of(language: Language, tokenizer: Tokenizer, text: str) -> Iterable[Distribution]:
    """p(next token) before each token of a document and before its end. Where symbols are tokens, it is faster."""
    if isinstance(language, SymbolLanguage):
        with suppress(ConfigError):
            return list(distributions_along(language, tokenizer, [*tokenizer.encode(text), tokenizer.end_of_text]))
    return next_token_distributions(language, tokenizer, text)


def distributions_along(
    language: SymbolLanguage[Any], tokenizer: Tokenizer, ids: Sequence[int]
) -> Iterator[Distribution]:
    """p(next token) before each of these tokens, up to the first that the language cannot write there.

    ConfigError for a vocabulary in which a symbol takes several tokens.
    """
    state = language.begin()
    for id_ in ids:
        following = {token_of(tokenizer, symbol): (symbol, p) for symbol, p in language.following(state).items()}
        yield {token: p for token, (_, p) in following.items()}
        symbol, _ = following.get(id_, (END, 0))
        if symbol == END:
            return
        state = language.after(state, symbol)


@lru_cache(maxsize=1 << 14)  # symbols occur again
def token_of(tokenizer: Tokenizer, symbol: str) -> int:
    """The token of a symbol, or of the end."""
    ids = [tokenizer.end_of_text] if symbol == END else tokenizer.encode(f" {symbol}")
    if len(ids) != 1:
        what = f"the symbol {symbol!r} takes {len(ids)} tokens, and on_policy needs one token for each"
        raise ConfigError("tokenizer", what, "use bpe with a larger vocab_size")
    return ids[0]

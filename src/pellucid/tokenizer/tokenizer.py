"""Text to token ids and back: a shell around the `tokenizers` library.

There are two kinds of vocabulary. Byte-level byte-pair encoding spells a text as UTF-8 bytes and joins frequent
neighbours into longer tokens, so it can write anything. The character vocabulary has one token for each character of
its corpus.

Control tokens, such as the one that ends a document, stand for no text, and no text stands for them: text that spells
`<|endoftext|>` becomes ordinary tokens. The first control token ends each document.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers
from typing_extensions import Self

from pellucid.errors import DataError
from pellucid.kernels.word_cache import WordCache

# Blanks and what follows them up to the next blank. No token of either vocabulary crosses the end of such a word, so
# words can be encoded one by one. (The separators 1C to 1F are blanks to Python, but not to byte-pair encoding.)
WORD = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")


class Tokenizer:
    """A trained vocabulary: made by `tokenizer/train.py`, or read from a tokenizer.json.

    vocab_size: ids are 0 … vocab_size − 1.   control_ids: all ids that no text turns into.
    end_of_text: the control id that stands before, between and after documents.
    """

    def __init__(self, library_tokenizer: tokenizers.Tokenizer) -> None:
        self._library = library_tokenizer
        self._library.encode_special_tokens = True  # a tokenizer.json does not hold this
        vocabulary = self._library.get_vocab(with_added_tokens=True)
        self.vocab_size = len(vocabulary)
        self.control_ids = tuple(sorted(self._library.get_added_tokens_decoder()))
        self.end_of_text = self.control_ids[0]
        texts = {id_: token for token, id_ in vocabulary.items() if id_ not in self.control_ids}
        self._characters: frozenset[str] | None = None  # None: any character can be written
        if isinstance(self._library.pre_tokenizer, pre_tokenizers.ByteLevel):
            byte_of = byte_of_symbol()
            self._bytes = {id_: bytes(byte_of[symbol] for symbol in token) for id_, token in texts.items()}
        else:
            self._bytes = {id_: character.encode() for id_, character in texts.items()}
            self._characters = frozenset(texts.values())
        self._bytes.update(dict.fromkeys(self.control_ids, b""))
        self.encode_batch = WordCache(WORD.findall, self._encode_words)  # `encode` for many texts, fast

    @classmethod
    def from_json(cls, text: str, source: str = "tokenizer.json") -> Self:
        """The tokenizer that `to_json` wrote. DataError for anything else."""
        try:
            library_tokenizer = tokenizers.Tokenizer.from_str(text)
            ids = sorted(library_tokenizer.get_vocab(with_added_tokens=True).values())
            if not isinstance(library_tokenizer.model, models.BPE) or ids != list(range(len(ids))):
                raise ValueError("not a tokenizer of Pellucid")
            return cls(library_tokenizer)
        except Exception as error:  # the library raises plain Exception; a foreign vocabulary KeyError or IndexError
            raise DataError(source, f"damaged, or not made by Pellucid ({error})", "prepare the data again") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a tokenizer.json. DataError if it is missing or damaged."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(str(path), f"cannot be read ({error})", "prepare the data again") from None
        return cls.from_json(text, str(path))

    def to_json(self) -> str:
        """Text of a tokenizer.json, which `tokenizers.Tokenizer.from_file` reads as well."""
        text: str = self._library.to_str(pretty=True)
        return text

    def save(self, path: Path) -> None:
        path.write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """DataError for half a surrogate pair, and for a character that a character vocabulary lacks."""
        self._check(text)
        ids: list[int] = self._library.encode(text).ids
        return ids

    @cached_property
    def merges(self) -> dict[int, tuple[int, int]]:
        """The pair of ids that each joined token was made of, in the order in which they were learned."""
        id_of = self._library.get_vocab(with_added_tokens=False)
        pairs = json.loads(self._library.to_str())["model"]["merges"]
        return {id_of[left + right]: (id_of[left], id_of[right]) for left, right in pairs}

    def writable_length(self, text: str) -> int:
        """How many characters a text begins with that can be encoded: a character vocabulary may lack the next."""
        if self._characters is None:
            return len(text)
        return next((i for i, character in enumerate(text) if character not in self._characters), len(text))

    def token_bytes(self, id_: int) -> bytes:
        """The UTF-8 bytes that a token stands for, maybe part of a character; none for a control token."""
        return self._bytes[id_]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids. Bytes that are no whole character become U+FFFD."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "replace")

    def _encode_words(self, words: list[str]) -> Iterator[list[int]]:
        self._check("".join(words))
        return (encoding.ids for encoding in self._library.encode_batch_fast(words))

    def _check(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = f"U+{ord(text[error.start]):04X}"
            raise DataError("text", f"holds {half}, half of a surrogate pair", "fix the text") from None
        if self._characters is not None and (unknown := set(text) - self._characters):
            character = min(unknown)
            raise DataError(
                "text",
                f"the character {character!r} (U+{ord(character):04X}) is not in the vocabulary of the char tokenizer",
                "leave it out, or train with tokenizer.type=bpe, which knows every character",
            )


def byte_of_symbol() -> dict[str, int]:
    """The byte behind each symbol of byte-level vocabularies, which write bytes as printable characters (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}

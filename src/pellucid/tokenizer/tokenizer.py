"""Text to token ids and back: a wrapper around the `tokenizers` library.

There are three kinds of vocabulary. Byte-level byte-pair encoding spells a text as UTF-8 bytes and joins frequent
neighbours into longer tokens, so it can write anything. The character vocabulary has one token for each character of
its corpus. That of ids is for what is no text: its tokens are the numbers from 0 on, with a blank before each. Some
models of others have pieces (`sentence_pieces.py`).

Control tokens, such as the one that ends a document, never come from text: text that spells `<|endoftext|>` becomes
ordinary tokens. The first control token ends each document, unless a template in the tokenizer.json says otherwise, as
in other projects: in `<s> $A </s>`, <s> stands before a text, and </s> ends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from typing_extensions import Self

from pellucid.errors import DataError
from pellucid.files import read_at_most, require_regular
from pellucid.kernels.word_cache import WordCache

# Blanks and the characters after them up to the next blank. No token of our own vocabularies crosses the end of such a
# word, so words can be encoded one by one. (The separators 1C to 1F are blanks to Python, not to byte-pair encoding.)
WORD = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")

# The control tokens of a conversation: who speaks, and where a turn ends.
USER, ASSISTANT, END_OF_TURN = CHAT_TOKENS = ("<|user|>", "<|assistant|>", "<|end|>")

IDS = "WordLevel"  # the library's name for a vocabulary of words, which are numbers here
MAX_BYTES = 1 << 26  # the largest tokenizer.json in use has a fifth of this


class Tokenizer:
    """A trained vocabulary: made by `tokenizer/train.py`, or read from a tokenizer.json.

    is_text: whether it is not one of ids, whose text is only how they are written: " 12 7 3".
    vocab_size: ids are 0 … vocab_size − 1.   control_ids: all ids that no text is encoded as.
    end_of_text: the control id before, between and after documents.   stop_ids: all ids that end a text, END_OF_TURN
    among them.   has_words: each word of a text (WORD) is encoded separately.   is_lossless: every text is the text of
    its tokens, by the way they are made; otherwise it depends on the text (`encode_exactly`).   lead: the blank that
    stands before the first word of each text in its tokens, though not in the text; for most, nothing.
    """

    lead = b""
    _symbols: frozenset[str] | None = None  # characters, or ids, that can be written; None: anything

    def __init__(self, library_tokenizer: tokenizers.Tokenizer) -> None:
        self._library = library_tokenizer
        self._library.encode_special_tokens = True  # a tokenizer.json does not hold this
        self._library.no_truncation()
        self._library.no_padding()
        description = json.loads(self._library.to_str())
        vocabulary = self._library.get_vocab(with_added_tokens=True)
        added = self._library.get_added_tokens_decoder()
        self.vocab_size, self.is_text = len(vocabulary), description["model"]["type"] != IDS
        self.control_ids = tuple(sorted(id_ for id_, token in added.items() if token.special))
        before, after = template_ids(description["post_processor"])
        self.end_of_text = end = [*before, *after, *self.control_ids][0]
        self._control_id = {token.content: id_ for id_, token in added.items() if token.special}
        self.stop_ids = tuple(dict.fromkeys([end, *after, self._control_id.get(END_OF_TURN, end)]))
        texts = {id_: token for token, id_ in vocabulary.items() if id_ not in added}
        if is_of_pieces := has_pieces(description):
            from pellucid.tokenizer.sentence_pieces import Guarded, lead_of, may_meet_controls, spelling

            has_bytes = bool(description["model"].get("byte_fallback"))
            self._bytes = {id_: spelling(token, has_bytes) for token, id_ in vocabulary.items()}
            added = {id_: token for id_, token in added.items() if token.special}
            self.lead = lead_of(steps(description, "normalizer", "pre_tokenizer"))
            if may_meet_controls(description["model"]):
                self._library = Guarded(self._library, self.control_ids)  # type: ignore[assignment]
        elif description["pre_tokenizer"] is None or not self.is_text:
            blank = "" if self.is_text else " "
            self._bytes = {id_: (blank + symbol).encode() for id_, symbol in texts.items()}
            self._symbols = frozenset(texts.values())
        else:
            byte_of = byte_of_symbol()
            self._bytes = {id_: bytes(byte_of[symbol] for symbol in token) for id_, token in texts.items()}
        self._bytes.update({id_: b"" if token.special else token.content.encode() for id_, token in added.items()})
        self.has_words = self.is_text and not is_of_pieces and has_words(description)
        self.is_lossless = not is_of_pieces and (not self.is_text or is_lossless(description))
        # `encode` for many texts at once
        self.encode_batch = WordCache(WORD.findall, self._encode_words) if self.has_words else self._encode_texts

    @classmethod
    def from_json(cls, text: str, source: str = "tokenizer.json") -> Self:
        """The tokenizer in a tokenizer.json, by Pellucid or another program. DataError for an unsupported kind."""
        from pellucid.tokenizer.rules import OTHER_KIND, not_expressible, require_harmless, try_its_rules

        require_harmless(text, source)
        try:
            with panics_are_errors(source):
                library_tokenizer = tokenizers.Tokenizer.from_str(text)
            description = json.loads(library_tokenizer.to_str())
            if reason := not_expressible(description, library_tokenizer.get_vocab(with_added_tokens=True).values()):
                raise DataError(source, f"a tokenizer that Pellucid cannot express: {reason}", OTHER_KIND)
            try_its_rules(library_tokenizer, steps(description, "normalizer", "pre_tokenizer"), source)
            return cls(library_tokenizer)
        except DataError:
            raise
        except Exception as error:  # the library raises plain Exception
            what = f"damaged, or not a tokenizer ({error})"
            raise DataError(source, what, "copy it again, or prepare the data again") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a tokenizer.json. DataError if it is missing or damaged."""
        try:
            require_regular(path)
            text = read_at_most(path, MAX_BYTES).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(str(path), f"cannot be read ({error})", "prepare the data again") from None
        return cls.from_json(text, str(path))

    @property
    def has_chat_tokens(self) -> bool:
        return self._control_id.keys() >= set(CHAT_TOKENS)

    def with_chat_tokens(self) -> Tokenizer:
        """A tokenizer that has the CHAT_TOKENS; any that are missing are added at the end of the vocabulary."""
        if self.has_chat_tokens:
            return self
        library_tokenizer = tokenizers.Tokenizer.from_str(self._library.to_str())
        library_tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in CHAT_TOKENS])
        return Tokenizer(library_tokenizer)

    def control_id(self, token: str) -> int:
        """The id of a control token. KeyError if the vocabulary lacks it."""
        return self._control_id[token]

    def control_token(self, id_: int) -> str:
        """The name of a control token."""
        return next(token for token, control_id in self._control_id.items() if control_id == id_)

    def to_json(self) -> str:
        """The text of a tokenizer.json, which `tokenizers.Tokenizer.from_file` can read as well."""
        return str(self._library.to_str(pretty=True))

    def save(self, path: Path) -> None:
        path.write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. DataError for half a surrogate pair, or a character or id that the vocabulary lacks."""
        self._check(text)
        if not self.is_text:
            return list(map(int, text.split()))
        with panics_are_errors("text"):
            return list(self._library.encode(text, add_special_tokens=False).ids)

    def encode_exactly(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Token ids of texts that are learned or scored. DataError for one that its tokens would spell otherwise.

        Otherwise a model would be trained, and its bits per byte counted, on another text than the one that is named.
        """
        encoded = self.encode_batch(texts)
        if not self.is_lossless:
            for text, ids in zip(texts, encoded, strict=True):
                _require_same(text, self.decode(ids.tolist()))
        return encoded

    @cached_property
    def merges(self) -> dict[int, tuple[int, int]]:
        """The pair of ids that each merged token was made of, the first of several, in the order of learning."""
        id_of = self._library.get_vocab(with_added_tokens=False)
        merges: dict[int, tuple[int, int]] = {}
        for left, right in json.loads(self._library.to_str())["model"].get("merges", ()):
            merges.setdefault(id_of[left + right], (id_of[left], id_of[right]))
        return merges

    def writable_length(self, text: str) -> int:
        """The number of characters before the first that cannot be encoded, which a character vocabulary may lack."""
        if self._symbols is None:
            return len(text)
        return next((i for i, character in enumerate(text) if character not in self._symbols), len(text))

    def token_bytes(self, id_: int) -> bytes:
        """The UTF-8 bytes of a token, which may be part of a character; none for a control token."""
        return self._bytes[id_]

    def spelled(self, ids: Iterable[int]) -> list[bytes]:
        """The bytes of each token of a text, of which the first that has any loses the `lead`."""
        spelled = [self._bytes[id_] for id_ in ids]
        first = next((i for i, each in enumerate(spelled) if each), len(spelled))
        return [each.removeprefix(self.lead) if i == first else each for i, each in enumerate(spelled)]

    def as_a_start(self, text: str) -> str:
        """Text that goes on after a blank, as a text that would get this blank as its `lead`. DataError without one."""
        if not text.startswith(lead := self.lead.decode()):
            what = f"{text[:20]!r} follows a part that is too long to be encoded with it, and begins with no blank"
            raise DataError("text", what, "put blanks between its words")
        return text.removeprefix(lead)

    def decode(self, ids: Iterable[int], *, goes_on: bool = False) -> str:
        """The text of the ids. Incomplete characters become U+FFFD. goes_on: there is text before it."""
        return b"".join(map(self.token_bytes, ids)).removeprefix(b"" if goes_on else self.lead).decode(errors="replace")

    def _encode_words(self, words: Sequence[str]) -> Iterator[list[int]]:
        self._check("".join(words))
        with panics_are_errors("text"):
            encodings = self._library.encode_batch_fast(words, add_special_tokens=False)
        return (encoding.ids for encoding in encodings)

    def _encode_texts(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        ids_of_texts = self._encode_words(texts) if self.is_text else map(self.encode, texts)
        return [np.array(ids, dtype=np.uint32) for ids in ids_of_texts]

    def _check(self, text: str) -> None:
        require_unicode(text)
        if self._symbols is not None and (unknown := set(text if self.is_text else text.split()) - self._symbols):
            first = min(unknown)
            what = f"{first!r} is none of the ids 0 to {len(self._symbols) - 1:,} of this vocabulary"
            fix = "write ids alone, with blanks between them, as in '2 0 1'"
            if self.is_text:
                what = f"the character {first!r} (U+{ord(first):04X}) is not in the vocabulary of the char tokenizer"
                fix = "leave it out, or train with tokenizer.type=bpe, which knows every character"
            raise DataError("text", what, fix)


def require_unicode(text: str) -> str:
    """The text. DataError for half a surrogate pair, which JSON can hold, and which Python reads a wrong byte as."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        wrong = f", or the byte {half - 0xDC00:#x}, which is not UTF-8" if 0xDC80 <= half <= 0xDCFF else ""
        raise DataError("text", f"holds U+{half:04X}, half of a surrogate pair{wrong}", "fix the text") from None
    return text


def _require_same(text: str, spelled: str) -> None:
    if text != spelled:
        n = min(len(text), len(spelled))
        start = next((i for i in range(n) if text[i] != spelled[i]), n)
        before, after = (ascii(each[max(start - 10, 0) : start + 10]) for each in (text, spelled))
        what = f"the tokenizer changes it: {before} becomes {after}"
        fix = "write the text in that form (NFC, if it is about accents), or choose a tokenizer that keeps any text"
        raise DataError("text", what, fix)


@contextmanager
def panics_are_errors(where: str) -> Iterator[None]:
    """Inside, a panic of the library's Rust code, which is no Exception, raises DataError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(where, f"the tokenizer's rules fail on it ({error})", "use another tokenizer") from None


def is_lossless(description: dict[str, Any]) -> bool:
    """Whether each text is spelled by its tokens: nothing changes it first, and no token has two spellings.

    A token that is added, and also made by merges, is spelled as it is written where it is found, and by its symbols
    (Ġ is a blank) where it is made.
    """
    made = description["model"]["vocab"] if description["model"]["ignore_merges"] else spelled(description["model"])
    return not description["normalizer"] and not any(each["content"] in made for each in description["added_tokens"])


def spelled(model: dict[str, Any]) -> set[str]:
    """The tokens that text can be encoded as: single symbols, and those that merges make."""
    return {token for token in model["vocab"] if len(token) == 1} | {"".join(pair) for pair in model.get("merges", ())}


def has_pieces(description: dict[str, Any]) -> bool:
    """Whether it writes a blank as ▁: its tokens are pieces of SentencePiece."""
    return "▁" in str([description["normalizer"], description["pre_tokenizer"]])


def has_words(description: dict[str, Any]) -> bool:
    """Whether it cuts a text as our own tokenizers do: by GPT-2's rule, or into characters."""
    own = not description["normalizer"] and all(token["special"] for token in description["added_tokens"])
    return own and [cut.get("use_regex") for cut in steps(description, "pre_tokenizer")] in ([], [True])


def steps(description: dict[str, Any], *places: str) -> list[dict[str, Any]]:
    """The steps that stand at these places: "normalizer" changes a text first, "pre_tokenizer" splits it."""
    rules = [rule for place in places if (rule := description[place]) is not None]
    return [step for rule in rules for step in rule.get("normalizers", rule.get("pretokenizers", [rule]))]


def template_ids(post_processor: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that the template of a tokenizer.json, `BEGIN $A END …`, puts before and after a text; else none."""
    before, after = list[int](), list[int]()
    for step in post_processor.get("processors", [post_processor]) if post_processor else []:
        place = before
        for part in step["single"] if step["type"] == "TemplateProcessing" else []:
            if "Sequence" in part:
                place = after
            else:
                place += step["special_tokens"][part["SpecialToken"]["id"]]["ids"]
    return before, after


def byte_of_symbol() -> dict[str, int]:
    """The byte of each symbol of byte-level vocabularies, which write bytes as printable characters (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}

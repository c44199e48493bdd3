"""Text to token ids and back: a wrapper around the `tokenizers` library.

There are three kinds of vocabulary. Byte-level byte-pair encoding spells a text as UTF-8 bytes and joins frequent
neighbours into longer tokens, so it can write anything. The character vocabulary has one token for each character of
its corpus. That of ids is for what is no text: its tokens are the numbers from 0 on, with a blank before each.

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
from itertools import chain
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

# Ways to cut a text before byte-pair encoding that lose none of it.
LOSSLESS_CUTS = ("ByteLevel", "Split", "Digits")


IDS = "WordLevel"  # the library's name for a vocabulary of words, which are numbers here
MAX_BYTES = 1 << 26  # the largest tokenizer.json in use has a fifth of this
MOST_TOKENS = 1 << 24  # this many ids take little memory; no tokenizer in use has a tenth
OTHER_KIND = "use a tokenizer of byte-level byte-pair encoding, as those of GPT-2, Llama 3 and Qwen"


class Tokenizer:
    """A trained vocabulary: made by `tokenizer/train.py`, or read from a tokenizer.json.

    is_text: whether it is not one of ids, whose text is only how they are written: " 12 7 3".
    vocab_size: ids are 0 … vocab_size − 1.   control_ids: all ids that no text is encoded as.
    end_of_text: the control id before, between and after documents.   stop_ids: all ids that end a text, END_OF_TURN
    among them.   has_words: each word of a text (WORD) is encoded separately.   is_lossless: every text is the text of
    its tokens, by the way they are made; otherwise it depends on the text (`encode_exactly`).
    """

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
        self.end_of_text = [*before, *after, *self.control_ids][0]
        self._control_id = {token.content: id_ for id_, token in added.items() if token.special}
        self.stop_ids = tuple(
            dict.fromkeys([self.end_of_text, *after, self._control_id.get(END_OF_TURN, self.end_of_text)])
        )
        texts = {id_: token for token, id_ in vocabulary.items() if id_ not in added}
        self._symbols: frozenset[str] | None = None  # characters, or ids, that can be written; None: anything
        if description["pre_tokenizer"] is None or not self.is_text:
            blank = "" if self.is_text else " "
            self._bytes = {id_: (blank + symbol).encode() for id_, symbol in texts.items()}
            self._symbols = frozenset(texts.values())
        else:
            byte_of = byte_of_symbol()
            self._bytes = {id_: bytes(byte_of[symbol] for symbol in token) for id_, token in texts.items()}
        self._bytes.update({id_: b"" if token.special else token.content.encode() for id_, token in added.items()})
        self.has_words, self.is_lossless = (
            self.is_text and _has_words(description),
            not self.is_text or _is_lossless(description),
        )
        # `encode` for many texts at once
        self.encode_batch = WordCache(WORD.findall, self._encode_words) if self.has_words else self._encode_texts

    @classmethod
    def from_json(cls, text: str, source: str = "tokenizer.json") -> Self:
        """The tokenizer in a tokenizer.json, by Pellucid or another program. DataError for an unsupported kind."""
        _require_harmless(text, source)
        try:
            with _panics_are_errors(source):
                library_tokenizer = tokenizers.Tokenizer.from_str(text)
            description = json.loads(library_tokenizer.to_str())
            if reason := _not_expressible(description, library_tokenizer.get_vocab(with_added_tokens=True).values()):
                raise DataError(source, f"a tokenizer that Pellucid cannot express: {reason}", OTHER_KIND)
            _try_its_rules(library_tokenizer, _cuts(description), source)
            return cls(library_tokenizer)
        except DataError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise DataError(
                source, f"damaged, or not a tokenizer ({error})", "copy it again, or prepare the data again"
            ) from None

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
        with _panics_are_errors("text"):
            ids: list[int] = (
                self._library.encode(text, add_special_tokens=False).ids
                if self.is_text
                else [int(number) for number in text.split()]
            )
        return ids

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
        """The pair of ids that each merged token was made of, in the order in which they were learned."""
        id_of = self._library.get_vocab(with_added_tokens=False)
        pairs = json.loads(self._library.to_str())["model"].get("merges", ())
        return {id_of[left + right]: (id_of[left], id_of[right]) for left, right in pairs}

    def writable_length(self, text: str) -> int:
        """The number of characters before the first that cannot be encoded, which a character vocabulary may lack."""
        if self._symbols is None:
            return len(text)
        return next((i for i, character in enumerate(text) if character not in self._symbols), len(text))

    def token_bytes(self, id_: int) -> bytes:
        """The UTF-8 bytes of a token, which may be part of a character; none for a control token."""
        return self._bytes[id_]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids. Incomplete characters become U+FFFD."""
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "replace")

    def _encode_words(self, words: Sequence[str]) -> Iterator[list[int]]:
        self._check("".join(words))
        with _panics_are_errors("text"):
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


def require_unicode(text: str) -> None:
    """Raise DataError for half a surrogate pair, which JSON can hold, and which Python reads a wrong byte as."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        wrong = f", or the byte {half - 0xDC00:#x}, which is not UTF-8" if 0xDC80 <= half <= 0xDCFF else ""
        raise DataError("text", f"holds U+{half:04X}, half of a surrogate pair{wrong}", "fix the text") from None


def _require_same(text: str, spelled: str) -> None:
    if text != spelled:
        n = min(len(text), len(spelled))
        start = next((i for i in range(n) if text[i] != spelled[i]), n)
        before, after = (ascii(each[max(start - 10, 0) : start + 10]) for each in (text, spelled))
        what = f"the tokenizer changes it: {before} becomes {after}"
        fix = "write the text in that form (NFC, if it is about accents), or choose a tokenizer that keeps any text"
        raise DataError("text", what, fix)


@contextmanager
def _panics_are_errors(where: str) -> Iterator[None]:
    """Inside, a panic of the library's Rust code, which is no Exception, raises DataError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(where, f"the tokenizer's rules fail on it ({error})", "use another tokenizer") from None


def _try_its_rules(library_tokenizer: tokenizers.Tokenizer, cuts: list[dict[str, Any]], source: str) -> None:
    """Raise DataError for a regular expression that never ends on a run of one of the characters that it is made of."""
    rules = "".join(str(cut["pattern"].get("Regex", "")) for cut in cuts if cut["type"] == "Split")
    for character in sorted(set(rules)):
        with _panics_are_errors(source):
            library_tokenizer.encode(40 * character)


def _require_harmless(tokenizer_json: str, source: str) -> None:
    """Raise DataError for what would end the library, and us: memory for all ids up to a huge one, a wrong prefix."""
    try:
        description = json.loads(tokenizer_json)
        ids = [*description["model"]["vocab"].values(), *(token["id"] for token in description["added_tokens"])]
        largest, model = max(ids, default=0), description["model"]
        marks = model.get("type") != "WordPiece" and model.get("continuing_subword_prefix")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # the library's own message is clearer
    if marks:
        raise DataError(source, "a tokenizer that Pellucid cannot express: it marks tokens inside words", OTHER_KIND)
    if isinstance(largest, int) and largest >= max(len(ids), MOST_TOKENS):
        what = f"its ids have gaps: {len(ids):,} tokens, the last with id {largest:,}"
        raise DataError(source, f"a tokenizer that Pellucid cannot express: {what}", OTHER_KIND)


def _not_expressible(description: dict[str, Any], ids: Iterable[int]) -> str | None:
    """Why texts could not be decoded exactly from this tokenizer's tokens; None if they can. ids: all that it has."""
    model, normalizer, added = (description[key] for key in ("model", "normalizer", "added_tokens"))
    ids, numbers = sorted(ids), {str(id_): id_ for id_ in range(len(model["vocab"]))}
    if (model["type"], model["vocab"]) != (IDS, numbers) and model["type"] != "BPE":
        return f"its model is {model['type']}, not byte-pair encoding"
    if any(model.get(key) for key in ("byte_fallback", "dropout", "end_of_word_suffix")):
        return "its tokens are not runs of bytes (SentencePiece, or marks at the ends of words)"
    if normalizer and normalizer["type"] != "NFC":  # text in that form stays as it is; `encode_exactly` finds any other
        return f"it changes the text first ({normalizer['type']})"
    if ids != list(range(len(ids))):
        return f"its ids have gaps: {len(ids):,} tokens, the last with id {ids[-1]:,}"
    controls = {token["id"] for token in added if token["special"]}
    if model["type"] == IDS or not controls:
        return None if controls else "no control token ends a document"
    if stripping := [each["content"] for each in added if not each["special"] and (each["lstrip"] or each["rstrip"])]:
        return f"its token {stripping[0]!r} swallows the blanks beside it"
    spelled = _spelled(model)
    if doubles := [each["content"] for each in added if each["special"] and each["content"] in spelled]:
        return f"its control token {doubles[0]!r} is also a token of ordinary text"
    if others := sorted({*chain(*template_ids(description["post_processor"]))} - controls):
        return f"its template puts id {others[0]}, which is not a control token, beside a text"
    cuts = _cuts(description)
    if not cuts:
        return "it joins characters across blanks" if model["merges"] or max(map(len, model["vocab"])) > 1 else None
    for cut in cuts:
        if cut["type"] not in LOSSLESS_CUTS or cut.get("add_prefix_space") or cut.get("behavior") == "Removed":
            return f"it changes the text where it cuts it ({cut['type']})"
    if any(cut["type"] == "ByteLevel" for cut in cuts[:-1]):
        return "it writes bytes as symbols twice"
    if cuts[-1]["type"] != "ByteLevel" or not byte_of_symbol().keys() <= model["vocab"].keys():
        return "it lacks tokens of single bytes"
    return None


def _is_lossless(description: dict[str, Any]) -> bool:
    """Whether each text is spelled by its tokens: nothing changes it first, and no token has two spellings.

    A token that is added, and also made by merges, is spelled as it is written where it is found, and by its symbols
    (Ġ is a blank) where it is made.
    """
    made = description["model"]["vocab"] if description["model"]["ignore_merges"] else _spelled(description["model"])
    doubles = [token["content"] for token in description["added_tokens"] if token["content"] in made]
    return not description["normalizer"] and not doubles


def _spelled(model: dict[str, Any]) -> set[str]:
    """The tokens that text can be encoded as: single symbols, and those that merges make."""
    return {token for token in model["vocab"] if len(token) == 1} | {"".join(pair) for pair in model["merges"]}


def _has_words(description: dict[str, Any]) -> bool:
    """Whether it cuts a text as our own tokenizers do: by GPT-2's rule, or into characters."""
    cuts = _cuts(description)
    by_rule = not cuts or (len(cuts) == 1 and cuts[0]["use_regex"])
    return by_rule and not description["normalizer"] and all(token["special"] for token in description["added_tokens"])


def _cuts(description: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps that split a text before byte-pair encoding."""
    rule = description["pre_tokenizer"]
    return [] if rule is None else rule.get("pretokenizers", [rule])


def template_ids(post_processor: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """The ids that the template of a tokenizer.json, `BEGIN $A END …`, puts before and after a text; else none."""
    before: list[int] = []
    after: list[int] = []
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

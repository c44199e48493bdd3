"""Vocabularies of SentencePiece (Kudo and Richardson 2018), as Llama 2, Gemma and T5 have them.

A blank is written ▁ and belongs to the word after it; many such tokenizers put one before each text, too. A token is a
run of characters, or one byte, <0x0A>, of a character that the vocabulary lacks. Byte-pair encoding joins characters
as it joins bytes; Unigram (Kudo 2018) takes the likeliest tokens that spell a text.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from pellucid.errors import DataError
from pellucid.tokenizer.tokenizer import Tokenizer

BLANK = "▁"
BYTE = re.compile("<0x([0-9A-F]{2})>")
# What changes or splits a text first, and leaves most texts as they are.
STEPS = ("NFC", "NFKC", "Precompiled", "Prepend", "Replace", "Strip", "Metaspace", "Split", "WhitespaceSplit")
Part = dict[str, Any]  # of a tokenizer.json


def spelling(token: str, has_bytes: bool) -> bytes:
    """The bytes of a token. has_bytes: <0x0A> is a byte, not six characters."""
    byte = BYTE.fullmatch(token) if has_bytes else None
    return bytes([int(byte[1], 16)]) if byte else token.replace(BLANK, " ").encode()


def lead_of(steps: Sequence[Part]) -> bytes:
    """The blank that these steps put before each text, or nothing."""
    puts_one = any(step["type"] == "Prepend" or step.get("prepend_scheme", "never") != "never" for step in steps)
    return b" " if puts_one else b""


def knows_every_character(model: Part) -> bool:
    """Whether it has all single bytes, so that any character can be written."""
    names = model["vocab"] if model["type"] == "BPE" else [name for name, _ in model["vocab"]]
    return bool(model.get("byte_fallback")) and {f"<0x{byte:02X}>" for byte in range(256)} <= set(names)


def may_meet_controls(model: Part) -> bool:
    """Whether it may take text for a control token: Unigram, which looks for whole tokens, or what lacks characters."""
    return model["type"] == "Unigram" or not knows_every_character(model)


def not_expressible(model: Part, steps: Sequence[Part], controls: Collection[int]) -> str | None:
    """Why texts could not be told from its tokens; None if they can. `encode_exactly` finds those that it changes."""
    for step in steps:
        if step["type"] not in STEPS or step.get("behavior") == "Removed" or step.get("prepend", BLANK) != BLANK:
            return f"it changes the text first ({step['type']})"
    unknown = model["vocab"].get(model["unk_token"]) if model["type"] == "BPE" else model["unk_id"]
    if not knows_every_character(model) and unknown not in controls:
        return "it leaves out characters that it lacks"
    return None


def n_leads(tokens: NDArray[np.integer], places: NDArray[np.integer], tokenizer: Tokenizer) -> int:
    """How many tokens after these places begin a text, with a blank that is not in the text."""
    first = tokens[places + 1][np.isin(tokens[places], tokenizer.control_ids)]
    return sum(tokenizer.token_bytes(id_).startswith(tokenizer.lead) for id_ in first.tolist())


class Guarded:
    """A library tokenizer that refuses text which it would encode as a control token: DataError."""

    def __init__(self, library: tokenizers.Tokenizer, controls: Collection[int]) -> None:
        self._library, self._controls = library, frozenset(controls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def encode(self, text: str, **options: Any) -> tokenizers.Encoding:
        encoding = self._library.encode(text, **options)
        for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if id_ in self._controls:
                what = f"{text[start:end]!r} is not in the vocabulary, or the name of a control token"
                raise DataError("text", what, "leave it out, or choose a tokenizer that knows every character")
        return encoding

    def encode_batch_fast(self, texts: Sequence[str], **options: Any) -> list[tokenizers.Encoding]:
        return [self.encode(text, **options) for text in texts]

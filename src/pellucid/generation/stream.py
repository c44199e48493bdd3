"""From tokens to text, as they come: in pieces, each of which is final.

A token is a run of bytes, and a character may need several tokens. So text is streamed through an incremental UTF-8
decoder, which holds the bytes of an unfinished character back until the rest of it arrives. In the same way what may be
the beginning of a stop string is held back.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pellucid.tokenizer import Tokenizer

FinishReason = Literal["end_of_text", "stop", "length"]


@dataclass(frozen=True)
class Token:
    """A token, where its text begins in the completion, in characters, and if asked for ln p of it and of others."""

    id: int
    offset: int
    log_p: float | None = None
    likeliest: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Piece:
    """The text and tokens that a step added. The last piece of a text says why it ended."""

    text: str
    tokens: Sequence[Token]
    finish_reason: FinishReason | None = None


class TextStream:
    """The text of a sequence of tokens, up to the first stop string. `pieces` grows with the tokens.

    U+FFFD stands for a character that is never completed. goes_on: there is text before it.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, goes_on: bool = True) -> None:
        self._tokenizer, self._stop, self._goes_on = tokenizer, stop, goes_on
        self.clear()

    def clear(self) -> None:
        """Forget all that was added."""
        self.pieces, self._held = list[Piece](), list[Token]()  # _held: tokens whose text is in no piece yet
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        # Characters written, how many of them are in pieces already, and the blank that only the first token has.
        self._text, self._n_emitted, self._lead = "", 0, b"" if self._goes_on else self._tokenizer.lead

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.pieces[-1].finish_reason if self.pieces else None

    def add(
        self,
        token_id: int,
        log_p: float | None = None,
        likeliest: Sequence[tuple[int, float]] = (),
        *,
        is_last: bool = False,
    ) -> None:
        """Append a token, and emit the text that is final."""
        self._held.append(Token(token_id, len(self._text), log_p, likeliest))
        spelled, self._lead = self._tokenizer.token_bytes(token_id).removeprefix(self._lead), b""
        self._write(spelled, "length" if is_last else None)

    def end(self, reason: FinishReason) -> None:
        """End, and emit what was held back."""
        self._write(b"", reason)

    def _write(self, spelled: bytes, reason: FinishReason | None) -> None:
        self._text += self._decoder.decode(spelled, final=reason is not None)
        if (start := first_stop(self._text, self._stop, self._n_emitted)) is not None:
            self._held = [token for token in self._held if token.offset < start]
            self._emit(start, "stop")
        elif reason is not None:
            self._emit(len(self._text), reason)
        else:
            self._emit(settled_length(self._text, self._stop))

    def _emit(self, length: int, reason: FinishReason | None = None) -> None:
        """A piece: the text up to here, and the tokens that it begins with."""
        n_tokens = len(self._held) if reason else sum(token.offset < length for token in self._held)
        tokens, self._held = self._held[:n_tokens], self._held[n_tokens:]
        if reason or length > self._n_emitted or tokens:
            self.pieces.append(Piece(self._text[self._n_emitted : length], tokens, reason))
        self._n_emitted = length


def first_stop(text: str, stop: Sequence[str], begin: int = 0) -> int | None:
    """Where the first stop string from `begin` on starts: the one that is complete first, in whatever pieces."""
    ends = [(start + len(each), start) for each in stop if (start := text.find(each, begin)) >= 0]
    return min(ends)[1] if ends else None


def settled_length(text: str, stop: Sequence[str]) -> int:
    """How many characters are final: those before an ending with which a stop string may begin."""
    longest = max((len(each) for each in stop), default=1) - 1
    starts = range(max(0, len(text) - longest), len(text))
    return next((i for i in starts if any(each.startswith(text[i:]) for each in stop)), len(text))

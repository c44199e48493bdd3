"""From token ids to text: the one file of generation that knows a tokenizer.

A token is a run of bytes, and a character may need several tokens. So text is streamed through an incremental UTF-8
decoder, which holds the bytes of an unfinished character back until the rest of it arrives. In the same way the stream
holds back what may be the beginning of a stop string.
"""

import codecs
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from pellucid.errors import ConfigError
from pellucid.generation.beam_search import beam_search
from pellucid.generation.decoding import generate_tokens
from pellucid.generation.sampling import Sampling
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

FinishReason = Literal["end_of_text", "stop", "length"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completion:
    """The continuation of a prompt, up to the first stop string, which is left out.

    `token_ids` do not include the control token that may have ended it, but do include those of the stop string.
    `tokens_per_second` counts from the reading of the prompt to this sample's last token. Only beam search has a score.
    """

    prompt: str
    completion: str
    token_ids: list[int]
    finish_reason: FinishReason
    tokens_per_second: float
    score: float | None = None

    def to_json(self) -> dict[str, object]:
        """The fields of `pellucid generate --json`; `tokens` counts the new ones."""
        return {
            "prompt": self.prompt,
            "completion": self.completion,
            "tokens": len(self.token_ids),
            "tokens_per_second": self.tokens_per_second,
            "finish_reason": self.finish_reason,
            **({} if self.score is None else {"score": self.score}),
        }


def generate_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    n_samples: int,
    max_new_tokens: int,
    sampling: Sampling,
    stop: Sequence[str] = (),
    seed: int | None = None,
) -> list[Completion]:
    """Let the model continue `prompt` in `n_samples` ways; an empty prompt is the start of a document.

    Each sample ends before the first of the strings in `stop`. The same seed writes the same text; without a seed, each
    call writes another. Raises ConfigError for an invalid count, seed or stop string, DataError for a prompt that the
    tokenizer cannot encode.
    """
    started = perf_counter()
    samples = [_Sample(tokenizer, stop) for _ in range(n_samples)]
    steps = write_tokens(
        model,
        tokenizer,
        _encode_prompt(model, tokenizer, prompt, n_samples, max_new_tokens, stop),
        n_samples=n_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        seed=seed,
    )
    for token_ids in steps:
        seconds = perf_counter() - started
        for sample, token_id in zip(samples, token_ids, strict=True):
            sample.add(token_id, seconds)
        if all(sample.has_ended for sample in samples):
            break
    return [_completion(tokenizer, prompt, sample.token_ids, stop, sample.seconds) for sample in samples]


def stream_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_new_tokens: int,
    sampling: Sampling,
    stop: Sequence[str] = (),
    seed: int | None = None,
) -> Iterator[str]:
    """The completion of one sample in pieces of whole characters, each as soon as it is written.

    Raises what `generate_text` raises.
    """
    prompt_ids = _encode_prompt(model, tokenizer, prompt, 1, max_new_tokens, stop)
    steps = write_tokens(
        model, tokenizer, prompt_ids, n_samples=1, max_new_tokens=max_new_tokens, sampling=sampling, seed=seed
    )
    pieces = decode_stream(tokenizer, (token_id for (token_id,) in steps if token_id not in tokenizer.stop_ids))
    return before_stop(pieces, stop)


def search_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    n_beams: int,
    n_best: int = 1,
    max_new_tokens: int,
    length_penalty: float = 1.0,
    stop: Sequence[str] = (),
) -> list[Completion]:
    """The `n_best` continuations of `prompt` that beam search finds, best first; fewer if there are fewer.

    A beam ends with a stop string, whose tokens count in its score. Raises what `generate_text` raises, and ConfigError
    for n_best > n_beams.
    """
    prompt_ids = _encode_prompt(model, tokenizer, prompt, n_best, max_new_tokens, stop)
    if n_best > n_beams:
        raise ConfigError("n_samples", f"{n_best} texts are more than {n_beams} beams find", "give more beams")

    def has_ended(token_ids: list[int]) -> bool:
        return token_ids[-1] in tokenizer.stop_ids or (
            bool(stop) and first_stop(tokenizer.decode(token_ids), stop) is not None
        )

    started = perf_counter()
    beams = beam_search(
        model,
        prompt_ids,
        n_beams=n_beams,
        max_new_tokens=max_new_tokens,
        length_penalty=length_penalty,
        has_ended=has_ended,
        forbidden_ids=never_written(tokenizer),
    )
    seconds = perf_counter() - started
    return [_completion(tokenizer, prompt, each.token_ids, stop, seconds, each.score) for each in beams[:n_best]]


def write_tokens(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    *,
    n_samples: int,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int | None,
) -> Iterator[list[int]]:
    """The next token of each sample, step by step; the last is one of `stop_ids`, and no other is a control token.

    Raises ConfigError for an invalid seed.
    """
    if seed is not None and not 0 <= seed < 2**64:
        raise ConfigError("seed", f"{seed} is not in [0, 2^64)", "give one that is, or none")
    return generate_tokens(
        model,
        prompt_ids,
        n_samples=n_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop_ids=tokenizer.stop_ids,
        seed=seed,
        forbidden_ids=never_written(tokenizer),
    )


def decode_stream(tokenizer: Tokenizer, token_ids: Iterable[int]) -> Iterator[str]:
    """`tokenizer.decode(token_ids)` in pieces: a character comes with the token that completes it.

    U+FFFD stands for one that is never completed.
    """
    return codecs.iterdecode(map(tokenizer.token_bytes, token_ids), "utf-8", errors="replace")


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins: the one that is complete first, whatever pieces the text comes in."""
    ends = [(start + len(each), start) for each in stop if (start := text.find(each)) >= 0]
    return min(ends)[1] if ends else None


def before_stop(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """The text before the first stop string, in pieces. What may be the beginning of a stop string is held back."""
    held = ""
    for piece in pieces:
        held += piece
        start = first_stop(held, stop)
        n_safe = length_before_a_beginning(held, stop) if start is None else start
        if n_safe:
            yield held[:n_safe]
        if start is not None:
            return
        held = held[n_safe:]
    if held:
        yield held


def length_before_a_beginning(text: str, stop: Sequence[str]) -> int:
    """How many characters cannot be part of a stop string: those before an ending with which one may begin."""
    longest = max((len(each) for each in stop), default=1) - 1
    starts = range(max(0, len(text) - longest), len(text))
    return next((i for i in starts if any(each.startswith(text[i:]) for each in stop)), len(text))


class _Sample:
    """The tokens of one sample while it is written."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self.token_ids: list[int] = []
        self.seconds = 0.0  # from the reading of the prompt to the last token
        self.has_ended = False
        self._tokenizer, self._stop = tokenizer, stop
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""

    def add(self, token_id: int, seconds: float) -> None:
        """Append a token, unless the sample has ended."""
        if self.has_ended:
            return
        self.token_ids.append(token_id)
        self.seconds = seconds
        self.has_ended = token_id in self._tokenizer.stop_ids
        if self._stop and not self.has_ended:
            self._text += self._decoder.decode(self._tokenizer.token_bytes(token_id))
            self.has_ended = first_stop(self._text, self._stop) is not None


def _completion(
    tokenizer: Tokenizer,
    prompt: str,
    token_ids: list[int],
    stop: Sequence[str],
    seconds: float,
    score: float | None = None,
) -> Completion:
    """From the tokens written, the last of which may be one that ends a text."""
    reason: FinishReason = "length"
    if token_ids and token_ids[-1] in tokenizer.stop_ids:
        token_ids, reason = token_ids[:-1], "end_of_text"
    text = tokenizer.decode(token_ids)
    start = first_stop(text, stop)
    if start is not None:
        text, reason = text[:start], "stop"
    return Completion(prompt, text, token_ids, reason, len(token_ids) / seconds if token_ids else 0.0, score)


def _encode_prompt(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, n_samples: int, max_new_tokens: int, stop: Sequence[str]
) -> list[int]:
    """The prompt's tokens, after checks of all arguments. Warns if its start does not fit into the context."""
    if n_samples < 1:
        raise ConfigError("n_samples", f"{n_samples} asks for no text", "give at least 1")
    if max_new_tokens < 0:
        raise ConfigError("max_new_tokens", f"{max_new_tokens} is negative", "give 0 or more")
    if "" in stop:
        raise ConfigError(
            "stop", "an empty string would stop before the first character", "give at least one character"
        )
    prompt_ids = [tokenizer.end_of_text, *tokenizer.encode(prompt)]  # a document begins after an end_of_text
    if len(prompt_ids) > model.max_positions + 1:
        n_unread = len(prompt_ids) - 1 - model.max_positions
        _log.warning("the prompt is longer than the context; its first %d tokens were not read", n_unread)
    return prompt_ids


def never_written(tokenizer: Tokenizer) -> list[int]:
    """The control tokens that end no text. A model has not learned to write them: no loss was ever on one."""
    return [id_ for id_ in tokenizer.control_ids if id_ not in tokenizer.stop_ids]

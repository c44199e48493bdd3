"""Text in, text out: a prompt that a model continues, by drawing or by beam search."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from pellucid.errors import ConfigError
from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.stream import FinishReason, TextStream, first_stop
from pellucid.generation.writing import Writing
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

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
    prompt_ids = _encode_prompt(model, tokenizer, prompt, n_samples, max_new_tokens, stop)
    writings = [
        Writing(
            prompt_ids,
            max_new_tokens,
            sampling,
            seed_of(seed, i),
            TextStream(tokenizer, stop, goes_on=bool(prompt)) if stop else None,
        )
        for i in range(n_samples)
    ]
    seconds = [perf_counter() - started for _ in written(model, tokenizer, writings)]  # after each token
    return [
        _completion(tokenizer, prompt, each.token_ids, stop, seconds[len(each.token_ids) - 1] if seconds else 0.0)
        for each in writings
    ]


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
    text = TextStream(tokenizer, stop, goes_on=bool(prompt))
    return streamed(model, tokenizer, Writing(prompt_ids, max_new_tokens, sampling, seed_of(seed), text))


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
    from pellucid.generation.beam_search import beam_search  # few texts are searched for

    prompt_ids = _encode_prompt(model, tokenizer, prompt, n_best, max_new_tokens, stop)
    if model.environment:
        raise ConfigError("beams", "a search does not wait for the tool that answers this model", "draw the text")
    if n_best > n_beams:
        raise ConfigError("n_samples", f"{n_best} texts are more than {n_beams} beams find", "give more beams")

    def has_ended(token_ids: list[int]) -> bool:
        return token_ids[-1] in tokenizer.stop_ids or (
            bool(stop) and first_stop(tokenizer.decode(token_ids, goes_on=bool(prompt)), stop) is not None
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


def written(model: LanguageModel, tokenizer: Tokenizer, writings: Sequence[Writing]) -> Iterator[None]:
    """Writes these texts in step. The tokenizer's `stop_ids` end a text, and it has no other control token."""
    return in_step(model, writings, stop_ids=tokenizer.stop_ids, forbidden_ids=never_written(tokenizer))


def streamed(model: LanguageModel, tokenizer: Tokenizer, writing: Writing) -> Iterator[str]:
    """The text of a writing in pieces of whole characters, each as soon as it is final."""
    n_given = 0
    for _ in written(model, tokenizer, [writing]):
        for piece in writing.pieces[n_given:]:
            if piece.text:
                yield piece.text
        n_given = len(writing.pieces)


def seed_of(seed: int | None, number: int = 0) -> tuple[int, int] | None:
    """The seed of one of several texts, each of which has its own random numbers. ConfigError for an invalid one."""
    if seed is not None and not 0 <= seed < 2**64:
        raise ConfigError("seed", f"{seed} is not in [0, 2^64)", "give one that is, or none")
    return None if seed is None else (seed, number)


def _completion(
    tokenizer: Tokenizer,
    prompt: str,
    token_ids: list[int],
    stop: Sequence[str],
    seconds: float,
    score: float | None = None,
) -> Completion:
    """Build a Completion from the written tokens, the last of which may be one that ends a text."""
    reason: FinishReason = "length"
    if token_ids and token_ids[-1] in tokenizer.stop_ids:
        token_ids, reason = token_ids[:-1], "end_of_text"
    text = tokenizer.decode(token_ids, goes_on=bool(prompt))
    if (start := first_stop(text, stop)) is not None:
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
        what = "an empty string would stop before the first character"
        raise ConfigError("stop", what, "give at least one character")
    prompt_ids = [tokenizer.end_of_text, *tokenizer.encode(prompt)]  # a document begins after an end_of_text
    if len(prompt_ids) > model.max_positions + 1:
        n_unread = len(prompt_ids) - 1 - model.max_positions
        _log.warning("the prompt is longer than the context; its first %d tokens were not read", n_unread)
    return prompt_ids


def never_written(tokenizer: Tokenizer) -> list[int]:
    """The control tokens that end no text. A model has not learned to write them: no loss was ever on one."""
    return [id_ for id_ in tokenizer.control_ids if id_ not in tokenizer.stop_ids]

"""From token ids to text: the one file of generation that knows a tokenizer.

A token is a run of bytes, and a character may need several tokens. So text is streamed through an incremental UTF-8
decoder, which holds the bytes of an unfinished character back until the rest of it arrives.
"""

import codecs
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from pellucid.errors import ConfigError
from pellucid.generation.decoding import generate_tokens
from pellucid.generation.sampling import Sampling
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

FinishReason = Literal["end_of_text", "length"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Completion:
    """What the model wrote after a prompt. `token_ids` do not include the end_of_text that may have ended it.

    `tokens_per_second` counts from the reading of the prompt to this sample's last token.
    """

    prompt: str
    completion: str
    token_ids: list[int]
    finish_reason: FinishReason
    tokens_per_second: float

    def to_json(self) -> dict[str, object]:
        """What `pellucid generate --json` shows of it; `tokens` counts the new ones."""
        return {
            "prompt": self.prompt,
            "completion": self.completion,
            "tokens": len(self.token_ids),
            "tokens_per_second": self.tokens_per_second,
            "finish_reason": self.finish_reason,
        }


def generate_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    n_samples: int,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int | None = None,
) -> list[Completion]:
    """Let the model continue `prompt` in `n_samples` ways; an empty prompt is the start of a document.

    The same seed writes the same text, and none a new one each time.
    Errors: ConfigError for a count or seed out of range, DataError for a prompt that the tokenizer cannot encode.
    """
    started = perf_counter()
    steps = _written(model, tokenizer, prompt, n_samples, max_new_tokens, sampling, seed)
    written = [(token_ids, perf_counter() - started) for token_ids in steps]
    completions = []
    for i in range(n_samples):
        ids = [token_ids[i] for token_ids, _ in written]
        has_ended = tokenizer.end_of_text in ids
        ids = ids[: ids.index(tokenizer.end_of_text)] if has_ended else ids
        speed = len(ids) / written[len(ids) + has_ended - 1][1] if ids else 0.0
        reason: FinishReason = "end_of_text" if has_ended else "length"
        completions.append(Completion(prompt, tokenizer.decode(ids), ids, reason, speed))
    return completions


def stream_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int | None = None,
) -> Iterator[str]:
    """The completion of one sample in pieces of whole characters, each as soon as it is written. Same errors."""
    steps = _written(model, tokenizer, prompt, 1, max_new_tokens, sampling, seed)
    return decode_stream(tokenizer, (token_id for (token_id,) in steps if token_id != tokenizer.end_of_text))


def decode_stream(tokenizer: Tokenizer, token_ids: Iterable[int]) -> Iterator[str]:
    """`tokenizer.decode(token_ids)` in pieces: a character comes with the token that completes it.

    U+FFFD stands for one that is never completed.
    """
    return codecs.iterdecode(map(tokenizer.token_bytes, token_ids), "utf-8", errors="replace")


def _written(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    n_samples: int,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int | None,
) -> Iterator[list[int]]:
    """The next token of each sample, step by step. Warns if the start of the prompt does not fit into the context."""
    _check_counts(n_samples, max_new_tokens, seed)
    end_of_text = tokenizer.end_of_text
    prompt_ids = [end_of_text, *tokenizer.encode(prompt)]  # a document begins after an end_of_text
    if len(prompt_ids) > model.max_positions + 1:
        n_unread = len(prompt_ids) - 1 - model.max_positions
        _log.warning("the prompt is longer than the context; its first %d tokens were not read", n_unread)
    return generate_tokens(
        model,
        prompt_ids,
        n_samples=n_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        end_of_text=end_of_text,
        seed=seed,
        # The other control tokens never occur in a corpus, so the model's logits for them are noise.
        forbidden_ids=[id_ for id_ in tokenizer.control_ids if id_ != end_of_text],
    )


def _check_counts(n_samples: int, max_new_tokens: int, seed: int | None) -> None:
    if n_samples < 1:
        raise ConfigError("n_samples", f"{n_samples} asks for no text", "give at least 1")
    if max_new_tokens < 0:
        raise ConfigError("max_new_tokens", f"{max_new_tokens} is negative", "give 0 or more")
    if seed is not None and not 0 <= seed < 2**64:
        raise ConfigError("seed", f"{seed} is not in [0, 2^64)", "give one that is, or none")

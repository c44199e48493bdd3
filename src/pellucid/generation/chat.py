"""A conversation with a model that was fine-tuned on them.

What was said is kept as text. For each answer it is put into the chat template again (`tokenizer/chat.py`), and the
model goes on with it: so the model reads exactly what it has seen in training.
"""

import logging
from collections.abc import Iterator

from pellucid.corpora.corpus import Turn
from pellucid.errors import ConfigError
from pellucid.generation.sampling import Sampling
from pellucid.generation.stream import FinishReason, TextStream
from pellucid.generation.text import seed_of, streamed
from pellucid.generation.writing import Writing
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids, require_chat_tokens

_log = logging.getLogger(__name__)


class Conversation:
    """Questions and answers so far, in `turns`, and a model that answers the next one.

    The model reads as many of the last turns as leave room in its context for `max_new_tokens` (default: three quarters
    of it): the oldest go first, a question with its answer. n_tokens: how many it has written. finish_reason: of its
    last answer. Raises ConfigError for a model that was not fine-tuned on conversations.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        precision: Precision,
        *,
        sampling: Sampling,
        max_new_tokens: int | None = None,
        seed: int | None = None,
    ) -> None:
        require_chat_tokens(tokenizer, "chat")
        self._model, self._tokenizer, self._precision = model, tokenizer, precision.for_decoding()
        self._sampling, self._seed = sampling, seed
        self._max_new_tokens = max(1, model.context_length * 3 // 4) if max_new_tokens is None else max_new_tokens
        if self._max_new_tokens < 1:
            raise ConfigError("max_new_tokens", f"{max_new_tokens} leaves no room for an answer", "give 1 or more")
        self._has_warned = False
        self.start_over()

    def start_over(self) -> None:
        """Forget all that was said."""
        self.turns: list[Turn] = []
        self.n_tokens = 0
        self.finish_reason: FinishReason | None = None

    def ask(self, text: str) -> str:
        """The whole answer to `text`. Errors as those of `say`."""
        return "".join(self.say(text))

    def say(self, text: str) -> Iterator[str]:
        """The answer to `text` in pieces, each as soon as it is written; after the last, both are among the turns.

        DataError for text that the vocabulary cannot write, ConfigError for more of it than the context holds.
        """
        turns = [*self.turns, Turn("user", text)]
        ids, n_new = self._read(turns)
        seed = seed_of(self._seed, len(self.turns) // 2)  # each answer draws other numbers
        writing = Writing(ids, n_new, self._sampling, seed, TextStream(self._tokenizer, goes_on=False))
        try:
            yield from self._precision.making(streamed(self._model, self._tokenizer, writing))
        finally:
            self.n_tokens += len(writing.token_ids) - (writing.finish_reason == "end_of_text")
        self.finish_reason = writing.finish_reason
        self.turns = [*turns, Turn("assistant", "".join(piece.text for piece in writing.pieces))]

    def _read(self, turns: list[Turn]) -> tuple[list[int], int]:
        """The tokens of the last turns, as many as fit, and how many new ones there is room for."""
        room = self._model.max_positions + 1  # the last new token is not read
        ids = prompt_ids(self._tokenizer, turns[-1:])
        if len(ids) >= room:
            what = f"this turn and its marks are {len(ids):,} tokens, and the context holds {room - 1:,}"
            raise ConfigError("chat", what, "say it in fewer words")
        for first in range(len(turns) - 3, -1, -2):
            longer = prompt_ids(self._tokenizer, turns[first:])
            if len(longer) + self._max_new_tokens > room:
                if not self._has_warned:
                    _log.warning("the conversation is longer than the context: its oldest turns are no longer read")
                self._has_warned = True
                break
            ids = longer
        return ids, min(self._max_new_tokens, room - len(ids))

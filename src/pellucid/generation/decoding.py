"""The decoding loop: a stream of token ids, one step of all samples at a time.

It knows nothing of text: token ids in, token ids out. `text.py` turns them into text.

Shapes: B samples, T tokens that the model reads at once, V vocabulary.
"""

from collections import deque
from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from pellucid.generation.sampling import Sampling, are_distributions, next_token, no_distribution
from pellucid.generation.single_token import proven
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel, eval_mode

# The model gives logits for every token that it reads. A long prompt is read in pieces of this many tokens, so that
# 16 samples, 1,024 tokens and a vocabulary of 50,257 do not need 3 GB of logits, of which one position is used.
TOKENS_READ_AT_ONCE = 128


def generate_tokens(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    *,
    n_samples: int,
    max_new_tokens: int,
    sampling: Sampling,
    stop_ids: Sequence[int],
    seed: int | None,
    forbidden_ids: Sequence[int] = (),
) -> Generator[list[int], None, None]:
    """Yield the next token of each sample, step by step, until all have drawn one of `stop_ids` or reached the limit.

    `prompt_ids` needs at least one token: a document begins after an end_of_text, which the caller puts first. A
    finished sample keeps yielding the first of `stop_ids`. Without a seed each call differs. SlidingWindow says what
    happens beyond the context. A repetition penalty counts the whole prompt, but no `stop_ids`: the one before a
    document is no reason not to end. Raises NonFiniteError for logits that are no distribution.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    forbidden = torch.tensor(forbidden_ids, dtype=torch.long, device=device)
    window = SlidingWindow(model, torch.tensor(prompt_ids, device=device).expand(n_samples, -1), max_new_tokens)
    has_ended = [False] * n_samples
    seen_BV = None
    if sampling.repetition_penalty != 1:
        seen_BV = torch.zeros(n_samples, model.vocab_size, dtype=torch.bool, device=device)
        seen_BV[:, [token_id for token_id in prompt_ids if token_id not in stop_ids]] = True

    with eval_mode(model):
        for _ in range(max_new_tokens):
            with torch.inference_mode():
                logits_BV = window.read()
                if forbidden_ids:
                    logits_BV.index_fill_(-1, forbidden, -torch.inf)
                if not all(are_distributions(logits_BV)):
                    raise no_distribution()
                token_ids_B = next_token(logits_BV, sampling, generator, seen_BV)
                window.add(token_ids_B)
                if seen_BV is not None:
                    seen_BV.scatter_(1, token_ids_B[:, None], True)

            drawn = zip(token_ids_B.tolist(), has_ended, strict=True)
            token_ids = [stop_ids[0] if ended else token_id for token_id, ended in drawn]
            yield token_ids
            has_ended = [token_id in stop_ids for token_id in token_ids]
            if all(has_ended):
                return


class SlidingWindow:
    """The part of a text that the model sees, where the text may be longer than its state can hold.

    At first this is the prompt, or as much of its end as fits, and all that follows. When the cache is full, the window
    slides: it starts again at position 0 with the last half of the context. So the model always sees at least half a
    context, and each token is read at most twice. Sliding by one token would read the whole window each time.
    """

    def __init__(self, model: LanguageModel, prompt_BT: Tensor, max_new_tokens: int) -> None:
        assert prompt_BT.size(1) > 0, "a document begins after an end_of_text"
        self._model = model
        self._unread_BT = prompt_BT[:, max(0, prompt_BT.size(1) - model.max_positions) :]
        self._latest_B1 = deque(torch.split(self._unread_BT, 1, dim=1), maxlen=max(1, model.max_positions // 2))
        self._batch_size, length = self._unread_BT.shape
        self._capacity = min(length + max_new_tokens, model.max_positions)
        self._state = model.new_state(self._batch_size, self._capacity)
        # The same decoder, faster for a single token (single_token.py).
        self._lean_decoder = proven(model) if isinstance(model, Decoder) else None

    def add(self, token_ids_B: Tensor) -> None:
        """Append one token to each sample."""
        self._unread_BT = token_ids_B[:, None]
        self._latest_B1.append(self._unread_BT)

    def reorder(self, rows_N: Tensor) -> None:
        """Go on with these sequences, in this order; one may be named several times."""
        self._state.reorder(rows_N)
        latest_NT = torch.cat(tuple(self._latest_B1), dim=1)[rows_N]
        self._latest_B1 = deque(torch.split(latest_NT, 1, dim=1), maxlen=self._latest_B1.maxlen)
        self._batch_size = len(rows_N)

    def read(self) -> Tensor:
        """Run the model on what it has not read yet; logits (B, V) for the token after that."""
        if self._state.length + self._unread_BT.size(1) > self._model.max_positions:
            self._state = self._model.new_state(self._batch_size, self._capacity)
            self._unread_BT = torch.cat(tuple(self._latest_B1), dim=1)
        if self._lean_decoder is not None and self._state.length > 0 and self._unread_BT.size(1) == 1:
            return self._lean_decoder(self._unread_BT[:, 0], self._state)
        for piece_BT in torch.split(self._unread_BT, TOKENS_READ_AT_ONCE, dim=1):
            logits_BTV: Tensor = self._model(piece_BT, self._state)
        return logits_BTV[:, -1]

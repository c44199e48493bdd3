"""What every model here is: tokens in, a score for every possible next token out, and a state to go on from.

    logits_BTV = model(tokens_BT)              all positions at once, as in training
    state = model.new_state(batch_size)        what the model keeps of the tokens it has read: nothing, so far
    logits_BTV = model(tokens_BT, state)       the tokens continue those that the state has seen, and are added to it

Read piece by piece or all at once, a text gives the same logits. Only training, generation and evaluation know more of
a model than this where they say so.

Shapes: B batch, T positions, V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class State(Protocol):
    """What a model keeps of the tokens read so far: a decoder's keys and values, a recurrent network's hidden state."""

    @property
    def length(self) -> int:
        """How many tokens of each sequence it has seen."""

    def reorder(self, rows_N: Tensor) -> None:
        """Go on with these sequences of the batch, in this order; one may be named several times."""


class LanguageModel(nn.Module):
    """p(next token | tokens so far) at every position at once, as logits.

    `blocks` are the parts, if any, that gradient checkpointing recomputes and FSDP gathers one after the other.
    `max_positions` is how many tokens a state can hold: models without positions or a cache go on for ever.
    """

    blocks: nn.ModuleList
    max_positions = sys.maxsize

    def __init__(self, vocab_size: int, context_length: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.context_length = context_length

    def forward(self, tokens_BT: Tensor, state: Any = None) -> Tensor:
        """Logits (B, T, V): those at position t score token t + 1 and depend on tokens 0 ... t alone."""
        raise NotImplementedError

    def new_state(self, batch_size: int, capacity: int | None = None) -> State:
        """The state before the first token. Models that reserve memory make room for `capacity` tokens."""
        raise NotImplementedError

    def hidden_modules(self) -> list[nn.Module]:
        """What gives each token its hidden vector (B, T, D), one module after the other: the logits are read from the
        last. None for a model that has no such vectors."""
        return []


def product_dtype(x: Tensor) -> torch.dtype:
    """What autocast, if it is on, computes products in; else the format of x itself."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """No dropout inside; afterwards the mode that the model was in, also after an error."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)

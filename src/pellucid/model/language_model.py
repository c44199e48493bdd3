"""The interface of every model: tokens in, a score for every possible next token out, and a state to continue from.

    logits_BTV = model(tokens_BT)              all positions at once, as in training
    state = model.new_state(batch_size)        the state before the first token
    logits_BTV = model(tokens_BT, state)       the tokens continue those that the state has seen, and are added to it

Read piece by piece or all at once, a text gives the same logits.

Shapes: B batch, T positions, V vocabulary.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


class State(Protocol):
    """Memory of the tokens read so far: a decoder's keys and values, or a recurrent network's hidden state."""

    @property
    def length(self) -> int:
        """The number of tokens of each sequence that it has seen."""

    def reorder(self, rows_N: Tensor) -> None:
        """Continue with these sequences of the batch, in this order; one may be named several times."""


class Step(NamedTuple):
    """A tensor on the way through a layer, for one text: a layer's `steps` say what its `forward` does.

    axes: their letters, as in names of the code. equations: those that compute it from earlier steps, numbered as in
    docs/equations.md. sublayer: "attention" or "feed_forward", once its place in the model is known.
    """

    name: str
    axes: str
    equations: tuple[int, ...]
    values: Tensor
    sublayer: str = ""


@runtime_checkable
class SparseLayer(Protocol):
    """A layer that sends each token to `top_k` of its parts: what others need to know of it."""

    top_k: int

    def initialize_router(self) -> None:
        """Initial weights for what chooses: all parts about equally likely."""

    def idle_parameters(self) -> int:
        """The number of parameters that a token does not meet."""

    def probabilities(self) -> AbstractContextManager[list[Tensor]]:
        """Inside, a forward pass appends the probabilities (B, T, E) of the parts to the list."""


class LanguageModel(nn.Module):
    """p(next token | tokens so far) at every position at once, as logits.

    `blocks` are the parts, if any, that gradient checkpointing recomputes and FSDP gathers one after the other.
    `max_positions` is the number of tokens a state can hold: unlimited without positions and cache.
    `environment` is of few models: from a prompt to the tool that answers when they write (generation/environment.py).
    """

    blocks: nn.ModuleList
    max_positions = sys.maxsize
    environment: Callable[[Sequence[int]], Any] | None = None

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
        """The modules whose outputs are hidden vectors (B, T, D), in order; none for a model without such vectors."""
        return []

    def sparse_layers(self) -> list[SparseLayer]:
        """The layers that send a token to some of their parts, in order; none in most models."""
        return [module for module in self.modules() if isinstance(module, SparseLayer)]


def gives_logits(name: str) -> bool:
    """Whether the parameter of this name has a part in a model's logits: all but those of a scalar head."""
    return not name.startswith("scalar_head.")


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast computes products, if it is on; else the dtype of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode (no dropout); afterwards in its previous mode, also after an error."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)

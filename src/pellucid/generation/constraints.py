"""Texts of a certain form alone: by a mask, which is quick, or by drafts, which is exact (equation 56).

A mask leaves the tokens with which a text can still become one of the form, and divides by their mass. So a beginning
that the model likes is chosen, however rarely the model would go on from there in this form: that is not its own
distribution, given the form. A draft is drawn in the same way, and kept with the product of these masses as its
probability, else begun again. What is kept has exactly the distribution

    p(text | it has the form) = p(text) / p(form)      if it has the form, else 0

This is rejection sampling. To need few drafts, it remembers what it has found out about each beginning.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.generation.sampling import apply_temperature
from pellucid.generation.stream import FinishReason

if TYPE_CHECKING:
    from pellucid.generation.writing import Writing

MOST_DRAFTS = 1000


class Beginning(Protocol):
    """The beginning of a text of some form, as far as it is written."""

    def allowed(self) -> Tensor:
        """Whether the text can go on with each token, or end with it: (V,)."""

    def add(self, token_id: int) -> None:
        """It goes on with this token, one of those that are allowed."""


class Form(Protocol):
    """A set of texts, such as those of a grammar."""

    def begin(self) -> Beginning:
        """An empty text."""


class Constraint(Protocol):
    """A demand on one text, kept while it is written."""

    def constrain(self, logits_V: Tensor) -> Tensor:
        """The logits from which the next token is to be drawn."""

    def drops(self, writing: Writing, reason: FinishReason | None) -> bool:
        """Whether all that is written is dropped after its last token. reason: why the text ends here, if it does."""


class Masked:
    """A token with which no text of the form goes on is never drawn."""

    def __init__(self, form: Form) -> None:
        self._beginning = form.begin()

    def constrain(self, logits_V: Tensor) -> Tensor:
        """Raises ConfigError if no token is left: a vocabulary of characters may lack the one that must come."""
        masked_V = logits_V.masked_fill(~self._beginning.allowed().to(logits_V.device), -math.inf)
        if masked_V.amax() == -math.inf:
            raise ConfigError("the form", "no token of the vocabulary goes on from here", "ask for another form")
        return masked_V

    def drops(self, writing: Writing, reason: FinishReason | None) -> bool:
        if reason is None:
            self._beginning.add(writing.token_ids[-1])
        return False


@dataclass(slots=True)
class Node:
    """A beginning of texts. share: of the model's texts that begin like this, at most so many have the form and end."""

    share: float = 1.0
    after: dict[int, Node] = field(default_factory=dict)


class Exactly:
    """Keeps a draft with the right probability, or drops it: what is kept follows the model, given the form.

    A text that is cut off does not have the form. `temperature` is that of the sampling, which must be nothing else:
    p(text) is the product of what its tokens are drawn with. Raises ConfigError after MOST_DRAFTS drafts.
    """

    def __init__(self, form: Form, temperature: float, seed: Sequence[int] | None = None) -> None:
        assert temperature > 0, "greedy text has no distribution"
        self._form, self._temperature = form, temperature
        self._random = np.random.Generator(np.random.Philox(None if seed is None else list(seed)))
        self._root, self.n_drafts = Node(), 0
        self._begin()

    def _begin(self) -> None:
        self.n_drafts += 1
        self._beginning, self._node = self._form.begin(), self._root
        self._way: list[tuple[Node, int, float, float]] = []  # tokens: after what, p, and share when it was drawn
        self._assumed: float | None = None  # the share of this node when it was drawn; the root is given
        self._keeps, self._uniform = 1.0, self._random.random()  # the draft is kept as long as the first is larger

    def constrain(self, logits_V: Tensor) -> Tensor:
        """ln of what each token leads to: its own probability, times the share of the form after it."""
        self._p_V = apply_temperature(logits_V, self._temperature).double().softmax(dim=-1)
        fitting_V = self._p_V * self._beginning.allowed().to(logits_V.device)
        for token_id, node in self._node.after.items():
            fitting_V[token_id] *= node.share
        self._node.share = fitting_V.sum().item()
        self._keeps *= self._node.share / self._assumed if self._assumed else self._node.share > 0
        return fitting_V.log() * self._temperature if self._keeps else logits_V  # any token, as the draft is dropped

    def drops(self, writing: Writing, reason: FinishReason | None) -> bool:
        if self._keeps > self._uniform and reason == "end_of_text":
            return False
        token_id = writing.token_ids[-1]
        after = self._node.after.setdefault(token_id, Node())
        self._way.append((self._node, token_id, self._p_V[token_id].item(), after.share))
        self._node, self._assumed = after, after.share
        if self._keeps > self._uniform and reason is None:
            self._beginning.add(token_id)
            return False
        if self._keeps > self._uniform:
            after.share = 0.0  # it is cut off here
        for node, id_, p, assumed in reversed(self._way):
            node.share = max(0.0, node.share - p * (assumed - node.after[id_].share))
        if not self._root.share or self.n_drafts == MOST_DRAFTS:
            what = f"none of {self.n_drafts:,} drafts was kept; {self._root.share:.1g} of the model's texts, at most,"
            raise ConfigError("exact", f"{what} have this form and end in time", "leave it out, or allow more tokens")
        self._begin()
        writing.token_ids, writing.log_p, writing.prompt_tokens = [], [], []
        if writing.text:
            writing.text.clear()
        return True

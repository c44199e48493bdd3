"""How good is the model: its loss on text it has not seen, next to the best possible loss where that is known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.training.objectives import next_token_nats
from pellucid.training.precision import Precision


@dataclass(frozen=True)
class Evaluation:
    """Nats spent on a text, in the units that people compare.

    nats: −Σ log p(token), end-of-text tokens included.   n_tokens: how many were predicted.
    n_bytes: UTF-8 bytes of the text.                      floor_nats: the text's own −log p under the truth, if known.
    """

    nats: float
    n_tokens: int
    n_bytes: int
    floor_nats: float | None

    @property
    def loss_nats_per_token(self) -> float:
        return self.nats / self.n_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss): the number of equally likely tokens that would be as hard to guess among."""
        return math.exp(min(700.0, self.loss_nats_per_token))

    @property
    def bits_per_byte(self) -> float:
        """Comparable between tokenizers, as loss per token is not."""
        return self.nats / math.log(2) / self.n_bytes

    @property
    def floor_nats_per_token(self) -> float | None:
        """The least loss that any model can reach on this text: the irreducible loss (equation 18)."""
        return None if self.floor_nats is None else self.floor_nats / self.n_tokens

    @property
    def excess_nats_per_token(self) -> float | None:
        """The reducible loss: what is left to learn (equation 18)."""
        floor = self.floor_nats_per_token
        return None if floor is None else self.loss_nats_per_token - floor

    @property
    def excess_fraction(self) -> float | None:
        """The excess as a share of the floor."""
        floor, excess = self.floor_nats_per_token, self.excess_nats_per_token
        return None if floor is None or excess is None else excess / floor

    def to_json(self) -> dict[str, float | int | None]:
        """All figures, as `pellucid evaluate --json` prints them."""
        return {
            "loss_nats_per_token": self.loss_nats_per_token,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "floor_nats_per_token": self.floor_nats_per_token,
            "excess_nats_per_token": self.excess_nats_per_token,
            "excess_fraction": self.excess_fraction,
            "tokens": self.n_tokens,
            "bytes": self.n_bytes,
        }

    def table(self) -> str:
        """All figures for a person to read, one a line."""
        lines = [
            f"loss        {self.loss_nats_per_token:.4f} nats/token over {self.n_tokens:,} tokens",
            f"perplexity  {self.perplexity:.3f}",
            f"bits/byte   {self.bits_per_byte:.4f}",
        ]
        if self.floor_nats is not None:
            lines.append(f"floor       {self.floor_nats_per_token:.4f} nats/token: the best that any model can do")
            lines.append(
                f"excess      {self.excess_nats_per_token:.4f} nats/token, {self.excess_fraction:.1%} of the floor"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        loss = f"loss {self.loss_nats_per_token:.4f} nats/token"
        if self.floor_nats is None:
            return f"{loss}   perplexity {self.perplexity:.2f}   {self.bits_per_byte:.4f} bits/byte"
        return (
            f"{loss}   floor {self.floor_nats_per_token:.4f}   "
            f"excess {self.excess_nats_per_token:.4f} ({self.excess_fraction:.1%} of the floor)"
        )


@torch.inference_mode()
def total_nats(model: nn.Module, batches: Iterable[Batch], precision: Precision) -> tuple[float, int]:
    """−Σ log p over all targets of the batches, in nats, and their number. Dropout is off meanwhile."""
    was_training = model.training
    model.eval()
    nats, n_tokens = 0.0, 0
    for batch in batches:
        inputs_BT, targets_BT = (tensor.to(precision.device) for tensor in batch)
        with precision.autocast():
            logits_BTV = model(inputs_BT)
        nats += next_token_nats(logits_BTV, targets_BT).item()
        n_tokens += int((targets_BT != IGNORE_INDEX).sum())
    model.train(was_training)
    return nats, n_tokens

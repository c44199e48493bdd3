"""A decoder that also gives each token a number: a reward, or the value that is still to come (`post_training/`).

Shapes: B batch, T positions, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn

from pellucid.model.decoder import Decoder


class ScoringDecoder(Decoder):
    """A decoder with a scalar head, from the final hidden vectors to a number; all are 0 at first."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.scalar_head = nn.Linear(self.embeddings.embedding_VD.size(1), 1)
        nn.init.zeros_(self.scalar_head.weight)
        nn.init.zeros_(self.scalar_head.bias)

    def scores(self, tokens_BT: Tensor) -> Tensor:
        """The number (B, T) for each token and those before it."""
        scores_BT1: Tensor = self.scalar_head(self.hidden(tokens_BT))
        return scores_BT1[..., 0]

    def logits_and_scores(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """From one pass: logits (B, T, V) and scores (B, T)."""
        hidden_BTD = self.hidden(tokens_BT)
        return self.unembed(hidden_BTD), self.scalar_head(hidden_BTD)[..., 0]

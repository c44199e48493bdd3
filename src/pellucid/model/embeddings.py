"""Embeddings: tokens to vectors, and vectors to logits; the two ends of the decoder (equation 3).

Shapes: B batch, T positions, D model, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.one_token import Projection, projection


class Embeddings(nn.Module):
    """A matrix whose rows are the embeddings of the tokens, and one whose products with x are their logits."""

    unembedding_VD: Tensor  # noqa: N815

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding_VD = nn.Parameter(torch.empty(vocab_size, d_model))

    def embed(self, tokens_BT: Tensor) -> Tensor:
        return F.embedding(tokens_BT, self.embedding_VD)

    def unembed(self, x_BTD: Tensor) -> Tensor:
        return F.linear(x_BTD, self.unembedding_VD)

    def on_one_token(self) -> tuple[Projection, Projection]:
        """The lean forms of `embed`, on tokens_B, and of `unembed`, on x_BD."""
        embedding_VD = self.embedding_VD
        return lambda tokens_B: F.embedding(tokens_B, embedding_VD), projection(self.unembedding_VD)


class TiedEmbeddings(Embeddings):
    """One matrix, used twice: a token's row is its embedding, and the row's product with x is its logit.

    Saves V*D parameters (Press and Wolf 2017).
    """

    @property
    def unembedding_VD(self) -> Tensor:  # type: ignore[override]
        return self.embedding_VD


class SeparateEmbeddings(Embeddings):
    """Two matrices: one embeds tokens, the other gives their logits."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.unembedding_VD = nn.Parameter(torch.empty(vocab_size, d_model))


class SoftCap(nn.Module):
    """cap * tanh(z / cap): logits stay within +-cap, and small ones stay as they are (Gemma 2, 2024)."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, logits_BTV: Tensor) -> Tensor:
        return self.cap * (logits_BTV / self.cap).tanh()

    def on_one_token(self) -> Projection:
        return lambda logits_BV: self.cap * torch.tanh(logits_BV / self.cap)

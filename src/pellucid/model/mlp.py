"""The neural n-gram model: the next token depends on the last few, through one table of embeddings.

    the last tokens ─► their embeddings, side by side ─► hidden layer ─► unembedding ─► logits

Shapes: B batch, T positions, W window, P = W - 1 positions before, S = P + T, D model, F hidden, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pellucid.model.embeddings import Embeddings
from pellucid.model.feed_forward import Activation
from pellucid.model.language_model import LanguageModel, product_dtype


class MLP(LanguageModel):
    """A hidden layer over the last `window` tokens (equation 34; Bengio et al. 2003).

    A table of n-grams learns each sequence separately. Here similar words get similar embeddings, so what is learned
    about one carries over to the others. At the start of a text, zeros fill the window.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        window: int,
        embeddings: Embeddings,
        d_model: int,
        d_ff: int,
        activation: Activation,
    ) -> None:
        super().__init__(vocab_size, context_length)
        self.window = window
        self.embeddings = embeddings
        for embedding in embeddings.parameters():
            nn.init.normal_(embedding, std=d_model**-0.5)
        self.blocks = nn.ModuleList([HiddenLayer(window, d_model, d_ff, activation)])

    def forward(self, tokens_BT: Tensor, state: LatestEmbeddings | None = None) -> Tensor:
        state = state or self.new_state(tokens_BT.size(0))
        x_BTD = self.embeddings.embed(tokens_BT)
        x_BSD = state.append(x_BTD.to(product_dtype(x_BTD)))
        x_BTWD = x_BSD.unfold(1, self.window, 1).transpose(2, 3)  # at t the positions from t - W + 1 to t
        for block in self.blocks:
            x_BTD = block(x_BTWD.flatten(2))
        return self.embeddings.unembed(x_BTD)

    def new_state(self, batch_size: int, capacity: int | None = None) -> LatestEmbeddings:
        weight_VD = self.embeddings.embedding_VD
        shape = (batch_size, self.window - 1, weight_VD.size(1))
        return LatestEmbeddings(weight_VD.new_zeros(shape, dtype=product_dtype(weight_VD)))

    def hidden_modules(self) -> list[nn.Module]:
        """The hidden layer."""
        return list(self.blocks)


class HiddenLayer(nn.Module):
    """W_2 activation(W_1 x + b_1), where x holds the embeddings of a window, one after the other.

    The initial weights keep activations of order one, when x has variance 1 / d_model.
    """

    def __init__(self, window: int, d_model: int, d_ff: int, activation: Activation) -> None:
        super().__init__()
        self.W_1 = nn.Linear(window * d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model, bias=False)
        self.activation = activation
        nn.init.normal_(self.W_1.weight, std=window**-0.5)
        nn.init.zeros_(self.W_1.bias)
        nn.init.normal_(self.W_2.weight, std=d_ff**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, W D) to (B, T, D)."""
        return self.W_2(self.activation(self.W_1(x)))  # type: ignore[no-any-return]


class LatestEmbeddings:
    """The state of an MLP: embeddings of the last `window` - 1 tokens."""

    def __init__(self, latest_BPD: Tensor) -> None:
        self.length = 0
        self.latest_BPD = latest_BPD

    def append(self, x_BTD: Tensor) -> Tensor:
        """The old and the new embeddings, concatenated (B, S, D); keeps the last of them."""
        x_BSD = torch.cat([self.latest_BPD, x_BTD], dim=1)
        self.latest_BPD = x_BSD[:, x_BTD.size(1) :]
        self.length += x_BTD.size(1)
        return x_BSD

    def reorder(self, rows_N: Tensor) -> None:
        self.latest_BPD = self.latest_BPD[rows_N]

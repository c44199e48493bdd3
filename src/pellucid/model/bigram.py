"""The bigram model: what comes next depends on the last token alone.

Shapes: B batch, T positions, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.language_model import LanguageModel


class Bigram(LanguageModel):
    """One row of logits for each token that may stand before (equation 33). Zeros, to begin with: all are as likely.

    Trained long enough, the row's softmax is how often each token followed in the training text. `set_counts` puts
    that there at once.
    """

    def __init__(self, vocab_size: int, context_length: int) -> None:
        super().__init__(vocab_size, context_length)
        self.blocks = nn.ModuleList()
        self.logits_VV = nn.Parameter(torch.zeros(vocab_size, vocab_size))

    def forward(self, tokens_BT: Tensor, state: TokensRead | None = None) -> Tensor:
        if state is not None:
            state.length += tokens_BT.size(1)
        return F.embedding(tokens_BT, self.logits_VV)

    def new_state(self, batch_size: int, capacity: int | None = None) -> TokensRead:
        return TokensRead()

    @torch.no_grad()
    def set_counts(self, counts_VV: Tensor) -> None:
        """The optimum for a text in which token b followed token a counts_VV[a, b] times, but for one more pair a row.

        What was never seen would have probability 0 and cost infinitely much. So each token is counted as if it had
        stood there once more, followed by a 1 / V part of every token (Perks 1947).
        """
        smoothed_VV = counts_VV.double() + 1 / self.vocab_size
        self.logits_VV.copy_((smoothed_VV / smoothed_VV.sum(dim=1, keepdim=True)).log())


class TokensRead:
    """A state of nothing but the number of tokens read."""

    def __init__(self) -> None:
        self.length = 0

    def reorder(self, rows_N: Tensor) -> None:
        pass

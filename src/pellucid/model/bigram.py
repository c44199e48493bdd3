"""The bigram model: the next token depends on the last one alone.

Shapes: B batch, T positions, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.language_model import LanguageModel


class Bigram(LanguageModel):
    """A table of logits: row a scores every token that may follow token a (equation 33). All start at zero.

    After enough training, softmax of row a is how often each token followed a in the training text. `set_counts`
    sets those frequencies directly.
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
        """Set the optimal logits, smoothed, for a text in which token b followed token a counts_VV[a, b] times.

        A pair that was never seen would have probability 0 and an infinite loss. So 1 / V is added to each count
        (Perks 1947): one more pair in each row.
        """
        smoothed_VV = counts_VV.double() + 1 / self.vocab_size
        self.logits_VV.copy_((smoothed_VV / smoothed_VV.sum(dim=1, keepdim=True)).log())


class TokensRead:
    """A model's state that holds only the number of tokens read."""

    def __init__(self) -> None:
        self.length = 0

    def reorder(self, rows_N: Tensor) -> None:
        pass

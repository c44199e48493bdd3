"""The decoder-only transformer: tokens in, a score for every possible next token out.

    tokens ─► embedding (+ positions) ─► block 1 ─► … ─► block n ─► norm ─► unembedding ─► logits

Shapes: B batch, T positions, D model, V vocabulary.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.block import Block
from pellucid.model.embeddings import Embeddings
from pellucid.model.kv_cache import KVCache, NoCache
from pellucid.model.language_model import LanguageModel, product_dtype
from pellucid.model.positions import Positions


class Decoder(LanguageModel):
    """p(next token | tokens so far) at every position at once, as logits (equation 2).

    Assembled by `build.build_model`. The tables of sinusoidal positions and RoPE are not weights: the same weights
    load into a model built with a longer context_length.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        embeddings: Embeddings,
        positions: Positions,
        dropout: float,
        blocks: list[Block],
        final_norm: Callable[[Tensor], Tensor],
        soft_cap: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(vocab_size, context_length)
        self.max_positions = context_length  # of a state: a cache holds no more
        self.n_layers = len(blocks)
        self.embeddings = embeddings
        self.positions = positions
        self.dropout = dropout
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.soft_cap = soft_cap

    def forward(self, tokens_BT: Tensor, state: KVCache | None = None) -> Tensor:
        """Logits (B, T, V): those at position t score token t + 1 and depend on tokens 0 ... t alone.

        With a state, the tokens continue those it has seen, and are added to it.
        """
        return self.unembed(self.hidden(tokens_BT, state))

    def hidden(self, tokens_BT: Tensor, state: KVCache | None = None) -> Tensor:
        """The final hidden vectors (B, T, D), after the last norm: `unembed` turns them into logits."""
        state = KVCache([NoCache()] * self.n_layers) if state is None else state
        self.check_length(state.length + tokens_BT.size(1))

        x_BTD = self.embeddings.embed(tokens_BT)
        x_BTD = self.positions.add_to_embeddings(x_BTD, state.positions(tokens_BT)).to(product_dtype(x_BTD))
        x_BTD = F.dropout(x_BTD, self.dropout, self.training)
        for block, layer_cache in zip(self.blocks, state.layers, strict=True):
            x_BTD = block(x_BTD, layer_cache)
        return self.final_norm(x_BTD)

    def unembed(self, x_BTD: Tensor) -> Tensor:
        """Logits (B, T, V) of hidden vectors (B, T, D)."""
        return self.soft_cap(self.embeddings.unembed(x_BTD))

    def new_state(self, batch_size: int, capacity: int | None = None) -> KVCache:
        """An empty cache for `capacity` positions (default: context_length), in the dtype of the layers."""
        weight = self.embeddings.embedding_VD
        like = weight.new_empty(0, dtype=product_dtype(weight))
        return KVCache([block.new_cache(batch_size, capacity or self.context_length, like) for block in self.blocks])  # type: ignore[operator]

    def hidden_modules(self) -> list[nn.Module]:
        """The blocks, then the final norm."""
        return [*self.blocks, self.final_norm]

    def check_length(self, length: int) -> None:
        if length > self.context_length:
            fix = "give fewer, or build the model with a longer context_length"
            raise ValueError(f"{length} tokens are more than the context_length of {self.context_length}; {fix}")

"""The decoder-only transformer: tokens in, a score for every possible next token out.

    tokens ─► embedding (+ positions) ─► block 1 ─► … ─► block n ─► norm ─► unembedding ─► logits

Shapes: B batch, T positions, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.block import Block
from pellucid.model.embeddings import Embeddings
from pellucid.model.kv_cache import KVCache, NoCache
from pellucid.model.positions import Positions


class Decoder(nn.Module):
    """p(next token | tokens so far) at every position at once, as logits (equation 2).

    Put together from built parts by `build.build_model`. The tables of sinusoidal positions and RoPE are not
    weights: the same weights load into a model built with a longer context_length.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        n_kv_heads: int,
        head_width: int,
        embeddings: Embeddings,
        positions: Positions,
        dropout: float,
        blocks: list[Block],
        final_norm: Callable[[Tensor], Tensor],
        soft_cap: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.n_layers = len(blocks)
        self.n_kv_heads = n_kv_heads
        self.head_width = head_width
        self.embeddings = embeddings
        self.positions = positions
        self.dropout = dropout
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.soft_cap = soft_cap

    def forward(self, tokens_BT: Tensor, cache: KVCache | None = None) -> Tensor:
        """Logits (B, T, V): those at position t score token t + 1 and depend on tokens 0 ... t alone.

        With a cache, the tokens continue those it has seen, and are added to it.
        """
        layer_caches = [NoCache()] * self.n_layers if cache is None else cache.layers
        start = layer_caches[0].length
        self.check_length(start + tokens_BT.size(1))

        x_BTD = self.embeddings.embed(tokens_BT)
        x_BTD = self.positions.add_to_embeddings(x_BTD, start).to(product_dtype(x_BTD))
        x_BTD = F.dropout(x_BTD, self.dropout, self.training)
        for block, layer_cache in zip(self.blocks, layer_caches, strict=True):
            x_BTD = block(x_BTD, layer_cache)
        return self.soft_cap(self.embeddings.unembed(self.final_norm(x_BTD)))

    def new_cache(self, batch_size: int, capacity: int | None = None) -> KVCache:
        """An empty cache for `capacity` positions (default: context_length), in the dtype of the layers."""
        weight = self.embeddings.embedding_VD
        shape_LBGSK = (self.n_layers, batch_size, self.n_kv_heads, capacity or self.context_length, self.head_width)
        return KVCache(*torch.zeros((2, *shape_LBGSK), dtype=product_dtype(weight), device=weight.device))

    def check_length(self, length: int) -> None:
        if length > self.context_length:
            fix = "give fewer, or build the model with a longer context_length"
            raise ValueError(f"{length} tokens are more than the context_length of {self.context_length}; {fix}")


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

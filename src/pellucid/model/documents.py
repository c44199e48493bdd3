"""Rows that hold several documents, of which none sees another (equation 48).

To the model they are a state, as the tokens read before are when it writes: the state tells each token its position,
counted from the start of its document, and attention the mask.

Shapes: B rows, T query positions, S key positions.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.model.attention import causal_mask
from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import KVCache, NoCache
from pellucid.model.language_model import product_dtype


def document_mask(begins_BT: Tensor, like: Tensor) -> Tensor:
    """0 where the key is in the query's document, at or before the query; -infinity elsewhere: (B, 1, T, S)."""
    number_BT = begins_BT.cumsum(dim=1)
    is_other_BTS = number_BT[:, :, None] != number_BT[:, None, :]
    T = begins_BT.size(1)
    return causal_mask(T, T, like).masked_fill(is_other_BTS[:, None], float("-inf"))


def positions_in_documents(begins_BT: Tensor) -> Tensor:
    """The position of each token from the start of its document, or of the row, if its document began before it."""
    place_T = torch.arange(begins_BT.size(1), device=begins_BT.device)
    return place_T - (place_T * begins_BT).cummax(dim=1).values


class Documents(KVCache):
    """The state of a decoder before it reads rows in which a document begins at each token of `begins_BT`."""

    def __init__(self, begins_BT: Tensor, like: Tensor, n_layers: int) -> None:
        super().__init__([OneOfSeveral(document_mask(begins_BT, like))] * n_layers)
        self.positions_BT = positions_in_documents(begins_BT)

    def positions(self, tokens_BT: Tensor) -> Tensor:
        return self.positions_BT


class OneOfSeveral(NoCache):
    """A layer's cache that stays empty, and has the mask for its attention."""

    def __init__(self, mask_BTS: Tensor) -> None:
        self.mask = mask_BTS


def one_by_one(model: Decoder, end_of_text: int) -> Callable[[Tensor], Tensor]:
    """The logits of rows in which documents, each from the end_of_text before it on, do not see each other."""

    def logits(tokens_BT: Tensor) -> Tensor:
        weight = model.embeddings.embedding_VD
        like = torch.empty(0, dtype=product_dtype(weight), device=tokens_BT.device)
        return model(tokens_BT, Documents(tokens_BT == end_of_text, like, model.n_layers))  # type: ignore[no-any-return]

    return logits

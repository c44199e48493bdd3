"""The key/value cache: keys and values of the tokens so far, so that attention need not compute them again.

To write token t a decoder needs the keys and values of all tokens before it, and under the causal mask those never
change. With a cache, a new token costs one position's work instead of t. The cache is an argument of the forward pass,
never state of the model: one model can serve many sequences.

Shapes: L layers, B batch, G key/value heads, S key positions, K head width.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.model.language_model import State
from pellucid.model.positions import AtPosition, Position, nowhere


def attend_on_one_token(q_BH1K: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, is_seen_B11S: Tensor | None = None) -> Tensor:
    """PyTorch's own softmax attention, for lean forms; without `is_seen` a query sees all keys."""
    shares_heads = q_BH1K.size(1) != k_BGSK.size(1)
    return F.scaled_dot_product_attention(q_BH1K, k_BGSK, v_BGSK, attn_mask=is_seen_B11S, enable_gqa=shares_heads)


AttendOnOneToken = Callable[..., Tensor]


class LayerCache:
    """Keys and values of one layer, in memory allocated once. For inference: no gradient flows through it."""

    mask: Tensor | None = None

    def __init__(self, keys_BGSK: Tensor, values_BGSK: Tensor) -> None:
        self.length = 0
        self.keys_BGSK = keys_BGSK
        self.values_BGSK = values_BGSK

    def append(self, keys_BGSK: Tensor, values_BGSK: Tensor) -> tuple[Tensor, Tensor]:
        """Store the keys and values of the next positions, and return views of all so far."""
        n_new = keys_BGSK.size(2)
        start, end = self.length, self.length + n_new
        if end > (capacity := self.keys_BGSK.size(2)):
            raise ValueError(f"{end} positions do not fit into a cache of {capacity}; make it with a larger capacity")
        self.keys_BGSK.narrow(2, start, n_new).copy_(keys_BGSK.detach())
        self.values_BGSK.narrow(2, start, n_new).copy_(values_BGSK.detach())
        self.length = end
        return self.keys_BGSK.narrow(2, 0, end), self.values_BGSK.narrow(2, 0, end)

    def attend(
        self, heads_BM1K: Tensor, n_heads_each: Sequence[int], rotate: AtPosition, attend: AttendOnOneToken
    ) -> Tensor:
        """Append one more position, and let its query meet the keys of all: nothing is masked, as none is later.

        The heads are those of the queries, the keys and the values, so many each.
        """
        q_BH1K, k_BG1K, v_BG1K = rotated(heads_BM1K, n_heads_each, rotate, self.length)
        k_BGSK, v_BGSK = self.append(k_BG1K, v_BG1K)
        return attend(q_BH1K, k_BGSK, v_BGSK)

    def reorder(self, rows_N: Tensor) -> None:
        self.keys_BGSK, self.values_BGSK = self._rows(self.keys_BGSK, rows_N), self._rows(self.values_BGSK, rows_N)

    def _rows(self, x_BGSK: Tensor, rows_N: Tensor) -> Tensor:
        """These rows, of which only the positions that are in use are copied."""
        x_NGSK, n_used = x_BGSK.new_empty(len(rows_N), *x_BGSK.shape[1:]), min(self.length, x_BGSK.size(2))
        x_NGSK.narrow(2, 0, n_used).copy_(x_BGSK.narrow(2, 0, n_used).index_select(0, rows_N))
        return x_NGSK


class NoCache:
    """A LayerCache that stays empty, for training and for reading a text at once."""

    length = 0
    mask: Tensor | None = None  # attention's own

    def append(self, keys_BGSK: Tensor, values_BGSK: Tensor) -> tuple[Tensor, Tensor]:
        return keys_BGSK, values_BGSK

    def reorder(self, rows_N: Tensor) -> None:
        """Nothing is kept of any sequence."""


class KVCache:
    """A decoder's state: one cache per layer, all of the same length.

    With LayerCaches, costs 2 * n_layers * n_kv_heads * head_width numbers per position and sequence (equation 14).
    """

    def __init__(self, layers: Sequence[State]) -> None:
        self.layers = layers

    @property
    def length(self) -> int:
        return self.layers[0].length

    def positions(self, tokens_BT: Tensor) -> Tensor:
        """The positions (T,) of the tokens that come next."""
        return torch.arange(self.length, self.length + tokens_BT.size(1), device=tokens_BT.device)

    def reorder(self, rows_N: Tensor) -> None:
        """Continue with these sequences of the batch, in this order; one may be named several times."""
        for layer in self.layers:
            layer.reorder(rows_N)


def rotated(
    heads_BM1K: Tensor, n_heads_each: Sequence[int], rotate: AtPosition, position: Position
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: the first two turn together, and in place."""
    if rotate is not nowhere:
        rotate(heads_BM1K.narrow(1, 0, n_heads_each[0] + n_heads_each[1]), position)
    return torch.split_with_sizes(heads_BM1K, n_heads_each, 1)  # type: ignore[return-value]

"""Recurrent networks: their only memory of the tokens read is one vector per layer, or two in an LSTM.

    tokens ─► embedding ─► layer 1 ─► … ─► layer n ─► norm ─► unembedding ─► logits
                           h₁ ─┘ ▲         hₙ ─┘ ▲             from token to token: the state

Shapes: L layers, B batch, T positions, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.embeddings import Embeddings
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import onednn_has_bfloat16

Hidden = Tensor | tuple[Tensor, Tensor]


class Recurrent(LanguageModel):
    """PyTorch's RNN, LSTM or GRU between an embedding and an unembedding (equations 35 to 37).

    Dropout acts between layers, never from token to token (Zaremba et al. 2014).
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        embeddings: Embeddings,
        layers: nn.RNN | nn.LSTM | nn.GRU,
        final_norm: Callable[[Tensor], Tensor],
        dropout: float,
    ) -> None:
        super().__init__(vocab_size, context_length)
        self.blocks = nn.ModuleList()  # one fused kernel computes all layers
        self.embeddings = embeddings
        self.layers = layers
        self.final_norm = final_norm
        self.dropout = dropout

    def forward(self, tokens_BT: Tensor, state: HiddenState | None = None) -> Tensor:
        state = state or self.new_state(tokens_BT.size(0))
        x_BTD = F.dropout(self.embeddings.embed(tokens_BT), self.dropout, self.training)
        # Under autocast cuDNN computes in float16, even if bfloat16 is asked for, and small gradients would vanish.
        with torch.autocast("cuda", enabled=False) if x_BTD.is_cuda else nullcontext():
            x_BTD, state.hidden = self.layers(x_BTD, state.hidden)
        state.length += tokens_BT.size(1)
        x_BTD = F.dropout(x_BTD, self.dropout, self.training)
        return self.embeddings.unembed(self.final_norm(x_BTD))

    def new_state(self, batch_size: int, capacity: int | None = None) -> HiddenState:
        """Zeros, in memory that does not grow with the text."""
        h_LBD = self.embeddings.embedding_VD.new_zeros(self.layers.num_layers, batch_size, self.layers.hidden_size)
        return HiddenState((h_LBD, h_LBD.clone()) if isinstance(self.layers, nn.LSTM) else h_LBD)

    def hidden_modules(self) -> list[nn.Module]:
        """The layers, which one kernel computes together, then the final norm."""
        return [self.layers, self.final_norm]  # type: ignore[list-item]


class LSTM(nn.LSTM):
    """PyTorch's LSTM, in float32 on a CPU that has no bfloat16 kernel for it."""

    def forward(self, x_BTD: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:  # type: ignore[override]
        is_short = torch.is_autocast_enabled("cpu") and onednn_has_bfloat16()
        with torch.autocast("cpu", enabled=is_short):
            return super().forward(x_BTD, hidden)  # type: ignore[arg-type]


class HiddenState:
    """h (L, B, D) of all layers and, for an LSTM, its cells c: the counterpart of a decoder's KV cache."""

    def __init__(self, hidden: Hidden) -> None:
        self.length = 0
        self.hidden = hidden

    def reorder(self, rows_N: Tensor) -> None:
        old = self.hidden
        self.hidden = old[:, rows_N] if isinstance(old, Tensor) else (old[0][:, rows_N], old[1][:, rows_N])

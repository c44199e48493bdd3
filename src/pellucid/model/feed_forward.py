"""The feed-forward layer: at each position separately, widen, apply a non-linearity, and narrow again.

Shapes: B batch, T positions, D model, F feed-forward.
"""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, as_it_is, side_by_side

Activation = Callable[[Tensor], Tensor]


def relu_squared(x: Tensor) -> Tensor:
    """max(0, x)^2 (So et al. 2021, Primer)."""
    return F.relu(x).square()


class FeedForward(nn.Module):
    """W_2 activation(W_1 x + b_1) + b_2 (equation 11)."""

    def __init__(self, *, d_model: int, d_ff: int, activation: Activation, bias: bool, dropout: float) -> None:
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.W_2 = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation
        self.dropout = dropout

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden_BTF = self.activation(self.W_1(x_BTD))
        return F.dropout(self.W_2(hidden_BTF), self.dropout, self.training)

    def on_one_token(self) -> OnOneToken:
        widen, narrow, activation = side_by_side(self.W_1), side_by_side(self.W_2), self.activation
        if activation is relu_squared:
            return lambda x_BD: narrow(F.relu(widen(x_BD)).square_())
        note_unless_of_torch(activation)
        return lambda x_BD: narrow(activation(widen(x_BD)))

    def steps(self, x_TD: Tensor) -> list[Step]:
        hidden_TF = self.activation(self.W_1(x_TD))
        return [Step("hidden", "TF", (11,), hidden_TF), Step("output", "TD", (11,), self.W_2(hidden_TF))]


def note_unless_of_torch(activation: Activation) -> None:
    """PyTorch's own are the same for all."""
    function = activation.func if isinstance(activation, partial) else activation
    if str(function.__module__).partition(".")[0] != "torch":
        as_it_is(function)


class SwiGLU(nn.Module):
    """W_2 (silu(W_gate x) * W_1 x): one projection opens and shuts the other (Shazeer 2020), in Gemma with GELU.

    Three matrices instead of two: d_ff = 8/3 d_model costs what a plain layer with 4 d_model costs.
    """

    def __init__(self, *, d_model: int, d_ff: int, bias: bool, dropout: float, activation: Activation = F.silu) -> None:
        super().__init__()
        self.W_gate = nn.Linear(d_model, d_ff, bias=bias)
        self.W_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.W_2 = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = activation
        self.dropout = dropout

    def forward(self, x_BTD: Tensor) -> Tensor:
        hidden_BTF = self.activation(self.W_gate(x_BTD)) * self.W_1(x_BTD)
        return F.dropout(self.W_2(hidden_BTF), self.dropout, self.training)

    def on_one_token(self) -> OnOneToken:
        widen, narrow, activation = side_by_side(self.W_gate, self.W_1), side_by_side(self.W_2), self.activation
        note_unless_of_torch(activation)

        def on_one_token(x_BD: Tensor) -> Tensor:
            gate_BF, hidden_BF = widen(x_BD).chunk(2, dim=-1)
            return narrow(activation(gate_BF) * hidden_BF)

        return on_one_token

    def steps(self, x_TD: Tensor) -> list[Step]:
        hidden_TF = self.activation(self.W_gate(x_TD)) * self.W_1(x_TD)
        numbers = (22 if self.activation is F.silu else 53,)
        return [Step("hidden", "TF", numbers, hidden_TF), Step("output", "TD", numbers, self.W_2(hidden_TF))]

"""Residual connections with a norm on what the sublayer returns (equation 52; OLMo 2, 2024).

As in pre-norm, x runs from the embedding to the output through additions alone; but a sublayer adds no more than the
gain of its norm allows.

Shapes: B batch, T positions, D model.
"""

from typing import Any

from torch import Tensor

from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, as_function, on_one_token
from pellucid.model.residual import Residual, Sublayer


class OutputNorm(Residual):
    """x + norm(f(x))."""

    def forward(self, x_BTD: Tensor, *inputs: Any) -> Tensor:
        return x_BTD + self.norm(self.sublayer(x_BTD, *inputs))

    def on_one_token(self) -> OnOneToken:
        norm, sublayer = as_function(self.norm), on_one_token(self.sublayer)
        return lambda x_BD, *inputs: x_BD + norm(sublayer(x_BD, *inputs))

    def steps(self, x_TD: Tensor, inner: list[Step], *inputs: Any) -> list[Step]:
        """The stream, `inner`, which are the sublayer's steps, and the new stream."""
        new_x_TD = x_TD + self.norm(inner[-1].values)
        new_x = Step("new x", "TD", (52, *getattr(self.norm, "equations", ())), new_x_TD)
        return [Step("x", "TD", (52,), x_TD), *inner, new_x]


class BothNorms(Residual):
    """x + output_norm(f(norm(x))) (equation 58; Gemma 2, 2024)."""

    def __init__(self, norm: Sublayer, sublayer: Sublayer, output_norm: Sublayer) -> None:
        super().__init__(norm, sublayer)
        self.output_norm = output_norm

    def forward(self, x_BTD: Tensor, *inputs: Any) -> Tensor:
        return x_BTD + self.output_norm(self.sublayer(self.norm(x_BTD), *inputs))

    def on_one_token(self) -> OnOneToken:
        norm, sublayer, output_norm = as_function(self.norm), on_one_token(self.sublayer), as_function(self.output_norm)
        return lambda x_BD, *inputs: x_BD + output_norm(sublayer(norm(x_BD), *inputs))

    def steps(self, x_TD: Tensor, inner: list[Step], *inputs: Any) -> list[Step]:
        """The stream and what the sublayer reads, `inner`, which are the sublayer's steps, and the new stream."""
        normed = Step("norm(x)", "TD", getattr(self.norm, "equations", ()), self.norm(x_TD))
        new_x_TD = x_TD + self.output_norm(inner[-1].values)
        return [Step("x", "TD", (58,), x_TD), normed, *inner, Step("new x", "TD", (58,), new_x_TD)]

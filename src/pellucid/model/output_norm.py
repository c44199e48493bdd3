"""A residual connection with the norm on what the sublayer returns (equation 52; OLMo 2, 2024).

As in pre-norm, x runs from the embedding to the output through additions alone; but a sublayer adds no more than the
gain of its norm allows.

Shapes: B batch, T positions, D model.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, as_function, on_one_token
from pellucid.model.residual import PreNorm


class OutputNorm(PreNorm):
    """x + norm(f(x)). Other inputs of the sublayer f, such as attention's cache, are passed on."""

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

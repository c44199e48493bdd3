"""Residual connections, with the norm before or after the addition (equation 10).

Post-norm is the original transformer's (Vaswani et al. 2017). In pre-norm, GPT-2's, x runs from the
embedding to the output through additions alone, so gradients reach the first layer undamped (Xiong et
al. 2020).

Shapes: B batch, T positions, D model.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from pellucid.model.language_model import Step
from pellucid.model.one_token import OnOneToken, as_function, on_one_token

Sublayer = Callable[..., Tensor]  # a module, seen as the function it computes


class Residual(nn.Module):
    """A sublayer f and its norm. Other inputs of f, such as attention's cache, are passed on."""

    def __init__(self, norm: Sublayer, sublayer: Sublayer) -> None:
        super().__init__()
        self.norm = norm
        self.sublayer = sublayer


class PreNorm(Residual):
    """x + f(norm(x))."""

    def forward(self, x_BTD: Tensor, *inputs: Any) -> Tensor:
        return x_BTD + self.sublayer(self.norm(x_BTD), *inputs)

    def on_one_token(self) -> OnOneToken:
        norm, sublayer = as_function(self.norm), on_one_token(self.sublayer)
        return lambda x_BD, *inputs: x_BD + sublayer(norm(x_BD), *inputs)

    def steps(self, x_TD: Tensor, inner: list[Step], *inputs: Any) -> list[Step]:
        """The stream and what the sublayer reads, `inner`, which are the sublayer's steps, and the new stream."""
        normed = Step("norm(x)", "TD", getattr(self.norm, "equations", ()), self.norm(x_TD))
        new_x_TD = x_TD + inner[-1].values
        return [Step("x", "TD", (10,), x_TD), normed, *inner, Step("new x", "TD", (10,), new_x_TD)]


class PostNorm(Residual):
    """norm(x + f(x))."""

    def forward(self, x_BTD: Tensor, *inputs: Any) -> Tensor:
        return self.norm(x_BTD + self.sublayer(x_BTD, *inputs))

    def on_one_token(self) -> OnOneToken:
        norm, sublayer = as_function(self.norm), on_one_token(self.sublayer)
        return lambda x_BD, *inputs: norm(x_BD + sublayer(x_BD, *inputs))

    def steps(self, x_TD: Tensor, inner: list[Step], *inputs: Any) -> list[Step]:
        """The stream, `inner`, which are the sublayer's steps, and the new stream."""
        equations = tuple(dict.fromkeys((10, *getattr(self.norm, "equations", ()))))
        new_x_TD = self.norm(x_TD + inner[-1].values)
        return [Step("x", "TD", (10,), x_TD), *inner, Step("new x", "TD", equations, new_x_TD)]

"""The parallel block: attention and feed-forward read the same x, and both are added to it (equation 54).

Shapes: B batch, T positions, D model.
"""

from torch import Tensor

from pellucid.model.block import Block
from pellucid.model.language_model import State, Step
from pellucid.model.one_token import OnOneToken, as_function, on_one_token
from pellucid.model.residual import PreNorm, Residual


class Beside(Residual):
    """x + f(norm(read)), for a sublayer f that reads what an earlier one has read."""

    def forward(self, x_BTD: Tensor, read_BTD: Tensor) -> Tensor:
        return x_BTD + self.sublayer(self.norm(read_BTD))

    def on_one_token(self) -> OnOneToken:
        norm, sublayer = as_function(self.norm), on_one_token(self.sublayer)
        return lambda x_BD, read_BD: x_BD + sublayer(norm(read_BD))

    def steps(self, x_TD: Tensor, inner: list[Step], read_BTD: Tensor) -> list[Step]:
        normed = Step("norm(x)", "TD", getattr(self.norm, "equations", ()), self.norm(read_BTD)[0])
        new_x_TD = x_TD + inner[-1].values
        return [Step("x", "TD", (10,), x_TD), normed, *inner, Step("new x", "TD", (54,), new_x_TD)]


class ParallelBlock(Block):
    """x + attention(norm(x)) + feed_forward(norm(x)), each with a norm of its own (GPT-J; Wang and Komatsuzaki 2021).

    Neither waits for the other. Attention is added first, so that the stream can be looked at between the two.
    """

    def __init__(self, attention: PreNorm, feed_forward: PreNorm) -> None:
        super().__init__(attention, Beside(feed_forward.norm, feed_forward.sublayer))

    def forward(self, x_BTD: Tensor, cache: State) -> Tensor:
        return self.feed_forward(self.attention(x_BTD, cache), x_BTD)  # type: ignore[no-any-return]

    def on_one_token(self) -> OnOneToken:
        attention, feed_forward = on_one_token(self.attention), on_one_token(self.feed_forward)
        return lambda x_BD, cache: feed_forward(attention(x_BD, cache), x_BD)

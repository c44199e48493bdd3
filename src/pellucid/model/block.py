"""One layer of the decoder: positions exchange information, then each works on what it has gathered.

Shapes: B batch, T positions, D model.
"""

from torch import Tensor, nn

from pellucid.model.language_model import State
from pellucid.model.one_token import OnOneToken, on_one_token
from pellucid.model.residual import Residual


class Block(nn.Module):
    """Attention, then feed-forward, each with its norm and residual connection (equation 10)."""

    def __init__(self, attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward

    def forward(self, x_BTD: Tensor, cache: State) -> Tensor:
        x_BTD = self.attention(x_BTD, cache)
        return self.feed_forward(x_BTD)  # type: ignore[no-any-return]

    def on_one_token(self) -> OnOneToken:
        attention, feed_forward = on_one_token(self.attention), on_one_token(self.feed_forward)
        return lambda x_BD, cache: feed_forward(attention(x_BD, cache))

    def new_cache(self, batch_size: int, capacity: int, like: Tensor) -> State:
        """An empty cache for this layer's attention."""
        return self.attention.sublayer.new_cache(batch_size, capacity, like)  # type: ignore[attr-defined, no-any-return]

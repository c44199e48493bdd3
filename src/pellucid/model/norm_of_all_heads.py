"""A norm of the queries, or of the keys, of all heads as one vector (equation 24; OLMo 2, 2024).

Shapes: B batch, T positions, H heads, K head width, M = H K.
"""

from torch import Tensor, nn

from pellucid.model.one_token import Projection, as_function


class NormOfAllHeads(nn.Module):
    """Heads side by side, normalised, and parted again: a head may be larger than another, as without a norm."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x_BHTK: Tensor) -> Tensor:
        x_BTM = x_BHTK.transpose(1, 2).flatten(start_dim=2)
        return self.norm(x_BTM).unflatten(-1, (x_BHTK.size(1), -1)).transpose(1, 2)  # type: ignore[no-any-return]

    def on_one_token(self) -> Projection:
        norm = as_function(self.norm)
        return lambda x_BH1K: norm(x_BH1K.flatten(start_dim=1)).view(x_BH1K.shape)

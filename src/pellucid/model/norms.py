"""Normalisation: every token's vector is brought to a common scale before (or after) each sublayer.

Without it x grows with every sublayer that adds to it, and training a deep stack fails.

Shapes: B batch, T positions, D model.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from pellucid.model.one_token import Projection

EPSILON = 1e-5  # keeps a constant (or zero) vector from being divided by zero; the value of GPT-2 and Llama 2


class LayerNorm(nn.LayerNorm):
    """gain * (x - mean) / sqrt(variance + epsilon) + bias, over each token's coordinates (equation 10).

    PyTorch's own, which divides by D, not D - 1, for the variance; Ba, Kiros and Hinton 2016.
    """

    equations = (10,)

    def __init__(self, width: int, bias: bool, epsilon: float = EPSILON) -> None:
        super().__init__(width, eps=epsilon, bias=bias)

    def on_one_token(self) -> Projection:
        """The function alone, its parameters bound: to look them up takes as long as the norm itself."""
        shape, weight, bias, epsilon = self.normalized_shape, self.weight, self.bias, self.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)


class RMSNorm(nn.Module):
    """gain * x / sqrt(mean(x^2) + epsilon): LayerNorm without centring and bias.

    Zhang and Sennrich 2019. Written out to be read; PyTorch's own is not faster on a CPU.
    """

    equations = (21,)

    def __init__(self, width: int, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        # Computed in the type of the gain: where x is bfloat16, its 8 bits are too few for a sum.
        wide_BTD = x_BTD.to(self.weight.dtype)
        mean_square_BT1 = wide_BTD.square().mean(dim=-1, keepdim=True)
        return (self.weight * wide_BTD * torch.rsqrt(mean_square_BT1 + self.epsilon)).to(x_BTD.dtype)

    def on_one_token(self) -> Projection:
        """PyTorch's own is five kernels more; a single vector on a CPU is scaled by a number: three kernels less."""
        weight, epsilon, width = self.weight, self.weight.new_tensor(self.epsilon), len(self.weight)
        zero, is_on_cpu = torch.zeros_like(epsilon), weight.device.type == "cpu"

        def norm(x: Tensor) -> Tensor:
            wide = x.to(weight.dtype)
            if is_on_cpu and x.numel() == width:
                mean_square = torch.linalg.vector_norm(wide).item() ** 2 / width
                return torch.addcmul(zero, wide, weight, value=1 / sqrt(mean_square + self.epsilon)).to(x.dtype)
            length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
            scale = torch.addcmul(epsilon, length, length, value=1 / width).rsqrt_()
            return (wide * weight).mul_(scale).to(x.dtype)

        return norm

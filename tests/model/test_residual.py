import torch
from torch import nn

from pellucid.model.residual import PostNorm, PreNorm


class Times(nn.Module):
    """A sublayer whose effect can be followed by eye."""

    def forward(self, x, factor):
        return factor * x


class Plus1(nn.Module):
    """A stand-in for a norm whose effect can be followed by eye."""

    def forward(self, x):
        return x + 1


def test_pre_norm_adds_the_sublayer_of_the_norm():
    """Equation 10: x + f(norm(x)) = 5 + 10 (5 + 1)."""
    assert PreNorm(Plus1(), Times())(torch.tensor(5), 10) == 65


def test_post_norm_is_the_norm_of_the_sum():
    """Equation 10: norm(x + f(x)) = (5 + 10 * 5) + 1."""
    assert PostNorm(Plus1(), Times())(torch.tensor(5), 10) == 56

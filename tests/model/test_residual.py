import torch
from torch import nn

from pellucid.model.output_norm import BothNorms, OutputNorm
from pellucid.model.parallel import ParallelBlock
from pellucid.model.residual import PostNorm, PreNorm


class Times(nn.Module):
    """A sublayer whose effect can be followed by eye."""

    def forward(self, x, factor):
        return factor * x


class Twice(nn.Module):
    """A stand-in for a norm that does not go through a sum."""

    def forward(self, x):
        return 2 * x + 1


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


def test_output_norm_adds_the_norm_of_the_sublayer():
    """Equation 52: x + norm(f(x)) = 5 + (2 * 10 * 5 + 1)."""
    assert OutputNorm(Twice(), Times())(torch.tensor(5), 10) == 106


def test_with_both_norms_the_sublayer_reads_one_and_the_other_is_added():
    """Equation 58: x + norm2(f(norm1(x))) = 5 + (2 * 10 * (5 + 1) + 1)."""
    assert BothNorms(Plus1(), Times(), Twice())(torch.tensor(5), 10) == 126


def test_in_a_parallel_block_both_sublayers_read_the_same_x():
    """Equation 54: x + 10 (x + 1) + (x + 1)^2, with x = 5."""
    block = ParallelBlock(PreNorm(Plus1(), Times()), PreNorm(Plus1(), torch.square))
    assert block(torch.tensor(5), 10) == 5 + 60 + 36

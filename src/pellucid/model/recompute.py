"""Gradient checkpointing: activations are computed twice instead of stored."""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint as recompute_in_backward


def recompute_activations(blocks: Iterable[nn.Module]) -> None:
    """Make each block store only its input, and run again in the backward pass (equation 17).

    Memory falls from all activations to one tensor per block, for one more forward pass (Chen et al. 2016).
    """
    for block in blocks:
        block.forward = partial(recompute_in_backward, block.forward, use_reentrant=False)

"""Gradient checkpointing: activations are computed twice instead of stored."""

from collections.abc import Iterable
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute_in_backward
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from typing_extensions import assert_never

from pellucid.model.attention import MultiHeadAttention

PRODUCTS = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]  # with a weight matrix, which is the same for all


def recompute_activations(
    blocks: Iterable[nn.Module], what: Literal["none", "attention", "cheap", "block"] = "block"
) -> None:
    """Make each block store less in the forward pass and run the rest again in the backward pass (equation 17).

    block: only its input is stored; the price is one more forward pass (Chen et al. 2016). attention: all is stored but
    the scores and weights of its attention, which are large and quick to compute again (Korthikanti et al. 2022).
    cheap: only the products with weight matrices are stored, which are slow; norms, activation functions and attention
    are computed again.
    """
    for block in blocks:
        match what:
            case "none":
                pass
            case "attention":
                for module in block.modules():
                    if isinstance(module, MultiHeadAttention):
                        module.gather = partial(recompute_in_backward, module.gather, use_reentrant=False)  # type: ignore[method-assign]
            case "cheap":
                keep = partial(create_selective_checkpoint_contexts, PRODUCTS)
                block.forward = partial(recompute_in_backward, block.forward, use_reentrant=False, context_fn=keep)
            case "block":
                block.forward = partial(recompute_in_backward, block.forward, use_reentrant=False)
            case _:
                assert_never(what)

"""What training minimises.

Shapes: B batch, T positions, V vocabulary, N predictions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX

SumCrossEntropy = Callable[[Tensor, Tensor, int], Tensor]


def summed_cross_entropy(logits_NV: Tensor, targets_N: Tensor, ignore_index: int) -> Tensor:
    """-log softmax(logits)[target], summed over the targets that are not `ignore_index`, in float32 or wider."""
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    return F.cross_entropy(logits_NV.to(wide), targets_N, ignore_index=ignore_index, reduction="sum")


def next_token_nats(
    logits_BTV: Tensor, targets_BT: Tensor, cross_entropy: SumCrossEntropy = summed_cross_entropy
) -> Tensor:
    """-log p(target), summed over all targets that count: a scalar in nats (equation 2 before its mean).

    The sum, not the mean, because micro-batches may count different numbers of targets: only the sum of sums
    divided by the sum of counts is the mean over the whole batch (equation 16).
    """
    return cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), IGNORE_INDEX)

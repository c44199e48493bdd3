"""What training minimises.

Shapes: B batch, T positions, V vocabulary.
"""

import torch.nn.functional as F
from torch import Tensor

from pellucid.data.batches import IGNORE_INDEX


def next_token_nats(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """-log p(target), summed over all targets that count: a scalar in nats (equation 2 before its mean).

    The sum, not the mean, because micro-batches may count different numbers of targets: only the sum of sums
    divided by the sum of counts is the mean over the whole batch (equation 16).
    """
    return F.cross_entropy(
        logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )

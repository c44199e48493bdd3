"""L1: a pull on each number of a matrix that does not fade as the number gets small, so that it becomes 0."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer


def pull_towards_zero(optimizers: Iterable[Optimizer], strength: float) -> None:
    """After each step, every number of a matrix moves towards 0 by learning rate x strength, but not beyond.

    That is the proximal step of the lasso (Tibshirani 1996), apart from the optimizer's statistics as AdamW's decay is.
    With weight decay beside it, it is an elastic net (Zou and Hastie 2005).
    """

    @torch.no_grad()
    def pull(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            step = group["lr"] * strength
            for parameter in group["params"]:
                if parameter.ndim >= 2:
                    parameter.sub_(parameter.clamp(-step, step))

    for optimizer in optimizers:
        optimizer.register_step_post_hook(pull)

"""Lesson 2: arrays, and PyTorch beside the tape. Fill it in, then run `pellucid learn 2`.

The first three exercises and the last are in NumPy, the other two in PyTorch. Names of arrays end in their axes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray

# ---- Arrays ----


def conditional(counts_AB: Array) -> Array:
    """p(b | a) from how often a and b came together, as numbers or as shares. A row of zeros stays as it is."""
    # solution:
    sums_A1 = counts_AB.sum(axis=1, keepdims=True)
    return counts_AB / np.where(sums_A1 > 0, sums_A1, 1)
    # end


def tiles(picture_RC: Array, r: int, c: int) -> Array:
    """The picture in tiles of r by c: (R/r, C/c, r, c). R is a multiple of r, and C of c."""
    # solution:
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, r, n_columns // c, c).transpose(0, 2, 1, 3)
    # end


def pair_scores(u_BTD: Array, W_DE: Array, v_BSE: Array) -> Array:
    """How well each of T askers fits each of S answers, in each of B texts: (B, T, S)."""
    # solution:
    return np.einsum("btd,de,bse->bts", u_BTD, W_DE, v_BSE)
    # end


# ---- PyTorch ----


def surprise_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """-ln of the probability of each target, in nats. `logits` are (..., V), `targets` (...), and so is the result."""
    # solution:
    log_p = torch.log_softmax(logits, dim=-1)
    return -log_p.gather(-1, targets[..., None])[..., 0]
    # end


def rounded_with_slope(x: Tensor) -> Tensor:
    """x, each number rounded to the nearest whole one; to the tape, it looks as if nothing had happened to x."""
    # solution:
    return x + (x.round() - x).detach()
    # end


# ---- How sure is a mean? ----


def paired_error(a: Array, b: Array) -> tuple[float, float]:
    """The mean of a - b over n pairs, and its standard error."""
    # solution:
    difference = a - b
    return float(difference.mean()), float(difference.std(ddof=1) / len(difference) ** 0.5)
    # end

"""Lesson 11: what it costs, and what it buys. Write what is missing, then run `pellucid learn 11`.

Letters: V tokens in the vocabulary, L layers, D numbers per position, H query heads, G heads of keys and values,
K = D/H numbers per head, F hidden numbers of the feed-forward layer, T tokens in a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray


# ---- Counted ----


def count_parameters(V: int, L: int, D: int, H: int, G: int, F: int, tied: bool) -> int:
    """How many weights the matrices of a decoder have. Biases, gains and positions are left out.

    Each layer has W_Q, W_K, W_V, W_O and two feed-forward matrices. Tied: the embedding serves as unembedding, too.
    """
    # solution:
    K = D // H
    attention = 2 * D * H * K + 2 * D * G * K
    return L * (attention + 2 * D * F) + (1 if tied else 2) * V * D
    # end


def training_flops(V: int, L: int, D: int, F: int, T: int, n_tokens: int) -> int:
    """The FLOPs, forward and backward, of training on n_tokens tokens, in full texts of T tokens each; H = G.

    Only products of matrices count. To embed a token is to read a row, not a product. Each query is multiplied by the
    keys of all T tokens, also those that the mask hides.
    """
    # solution:
    weights = L * (4 * D * D + 2 * D * F) + V * D
    pairs = L * 2 * T * D
    return 3 * 2 * (weights + pairs) * n_tokens
    # end


def memory_bytes(n_weights: int, n_activations: int, bytes_each: int = 4) -> tuple[int, int, int, int]:
    """What training with Adam holds, in bytes: weights, gradients, optimizer, activations.

    All numbers have the same width, `bytes_each`; `n_activations` numbers are kept for the way back.
    """
    # solution:
    return n_weights * bytes_each, n_weights * bytes_each, 2 * n_weights * bytes_each, n_activations * bytes_each
    # end


# ---- Traded ----


def accumulated_gradient(gradient_of_sum: Callable[[Sequence[Any]], Array], pieces: Sequence[Sequence[Any]]) -> Array:
    """The gradient of the mean loss of a batch that comes in pieces.

    `gradient_of_sum(piece)` is the gradient of the *sum* of a piece's losses, of which there are `len(piece)`. Never
    give it more than one piece: more do not fit into memory.
    """
    # solution:
    total = sum(gradient_of_sum(piece) for piece in pieces)
    return total / sum(len(piece) for piece in pieces)
    # end


def operations_to_keep(n_bytes: Sequence[int], seconds: Sequence[float], budget: int) -> list[int]:
    """Which operations' results to keep, so that the others take the least time to compute again.

    Result i takes n_bytes[i] if it is kept, and seconds[i] to compute again if it is not. What is kept may take up to
    `budget` bytes. All bytes are whole numbers, and each result takes at least 1. The answer has the numbers of the
    operations, in rising order.
    """
    # solution:
    best = {0: (0.0, [])}  # by bytes in use: the seconds that are saved, and by what
    for i, (size, saved) in enumerate(zip(n_bytes, seconds, strict=True)):
        for used, (so_far, kept) in list(best.items()):
            now = used + size
            if now <= budget and so_far + saved > best.get(now, (-1.0, []))[0]:
                best[now] = (so_far + saved, [*kept, i])
    return max(best.values())[1]
    # end


def kv_cache_bytes(n_tokens: int, L: int, D: int, H: int, G: int, bytes_each: int = 2) -> int:
    """The size of the cache that a model keeps while it writes, after this many tokens of one text."""
    # solution:
    return 2 * n_tokens * L * G * (D // H) * bytes_each
    # end


# ---- Bought ----


def fit_with_known_floor(sizes: Array, losses: Array, floor: float) -> tuple[float, float]:
    """A and alpha of loss = floor + A · size^(-alpha), by a straight line through logarithms; alpha is positive.

    The line has the least sum of squares (`np.polyfit`).
    """
    # solution:
    slope, height = np.polyfit(np.log(sizes), np.log(np.asarray(losses) - floor), 1)
    return float(np.exp(height)), float(-slope)
    # end

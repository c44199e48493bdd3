"""Lesson 5: numbers in a machine. Write what is missing, then run `pellucid learn 5`.

A format has e bits for the exponent and m bits for the mantissa, besides one for the sign: float16 is (5, 10), bfloat16
is (8, 7). N counts numbers, M blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray

# ---- Bits ----


def fields(bits: int, e: int, m: int) -> tuple[int, int, int]:
    """The three fields of a number, each as a whole number: sign (1 bit), exponent (e bits), mantissa (m bits)."""
    return bits >> (e + m), (bits >> m) % 2**e, bits % 2**m


def decode(bits: int, e: int, m: int) -> float:
    """The number that these 1 + e + m bits stand for.

    Exponents of only zeros stand for zero and the subnormal numbers, others for normal numbers. Exponents of only ones,
    which stand for infinity and NaN, will not be asked for.
    """
    sign, exponent, mantissa = fields(bits, e, m)
    # solution:
    bias = 2 ** (e - 1) - 1
    if exponent == 0:
        size = mantissa / 2**m * 2.0 ** (1 - bias)
    else:
        size = (1 + mantissa / 2**m) * 2.0 ** (exponent - bias)
    return -size if sign else size
    # end


# ---- Rounding ----


def round_to_bf16(bits_32: int) -> int:
    """The 16 bits of the bfloat16 that is nearest to a float32, of which you get the 32 bits. No NaN will be asked for.

    If two are equally near, take the one whose last bit is 0.
    """
    # solution:
    kept, dropped = divmod(bits_32, 2**16)
    half = 2**15
    if dropped > half or (dropped == half and kept % 2 == 1):
        kept += 1
    return kept
    # end


def sum_in(numbers: Sequence[float], rounded: Callable[[float], float]) -> float:
    """The sum of the numbers from left to right, beginning with 0.0, in a format that `rounded` rounds to.

    The numbers belong to the format already. No result of an addition does, until it is rounded.
    """
    # solution:
    total = 0.0
    for number in numbers:
        total = rounded(total + number)
    return total
    # end


def round_to(x: float, e: int, m: int) -> float:
    """The number nearest to x in the format (e, m), as a float; the even one of two that are equally near.

    What rounds to 2^(bias + 1) or more in size becomes infinite, with its sign: that exponent would consist of ones. x
    may be 0 or infinite, and then stays what it is.
    """
    # solution:
    bias = 2 ** (e - 1) - 1
    if x == 0 or math.isinf(x):
        return x
    exponent = max(math.frexp(x)[1] - 1, 1 - bias)  # below the smallest normal number, steps get no smaller
    step = 2.0 ** (exponent - m)
    rounded = round(x / step) * step  # Python's round takes the even one of two
    return rounded if abs(rounded) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)
    # end


# ---- Gradients in float16 ----


def unscale(gradient_16: Array, scale: float) -> tuple[Array | None, float]:
    """What to step with, and the scale for the next step.

    The gradient is that of scale · loss, in float16. If a number of it is infinite or NaN, there is no step: return
    None, and half the scale. Otherwise return the gradient of the loss, as exact as float32 can have it, and the scale.
    """
    # solution:
    if not np.isfinite(gradient_16).all():
        return None, scale / 2
    return gradient_16.astype(np.float32) / scale, scale
    # end


# ---- Eight bits, and four ----


def absmax(x_N: Array, block: int) -> tuple[Array, Array]:
    """Codes (N), int8 from -127 to 127, and constants (M), one for each block of numbers: x ≈ constant · code.

    The constant is such that the largest number of a block, in absolute value, gets the code 127 or -127. N is a
    multiple of the block, and no block is all zeros.
    """
    # solution:
    blocks_MS = x_N.reshape(-1, block)
    constants_M = np.abs(blocks_MS).max(axis=1) / 127
    codes_MS = np.round(blocks_MS / constants_M[:, None])
    return codes_MS.astype(np.int8).reshape(-1), constants_M
    # end


def nearest_level(x_N: Array, levels_L: Array) -> Array:
    """The index (N) of the level that is nearest to each number. The levels are sorted, and any distance apart."""
    # solution:
    return np.abs(x_N[:, None] - levels_L).argmin(axis=1)
    # end


# ---- What the page uses ----


def to_bf16(x: float) -> float:
    return round_to(x, e=8, m=7)


def to_fp16(x: float) -> float:
    return round_to(x, e=5, m=10)


def next_words(corpus, tokenizer, texts) -> list[Array]:
    """The true probability of each next token (T, V), by the grammar, at each of the T places of each text."""
    from pellucid.data.truth import next_token_distributions

    tables = []
    for text in texts:
        rows = list(next_token_distributions(corpus.language, tokenizer, text))
        p_TV = np.zeros((len(rows), tokenizer.vocab_size))
        for p_V, row in zip(p_TV, rows, strict=True):
            p_V[list(row)] = list(row.values())
        tables.append(p_TV)
    return tables


def log_of(p: Array) -> Array:
    """ln p, and 0 where p is 0: there it gets multiplied by p."""
    return np.log(np.where(p > 0, p, 1))

"""Sinusoidal positions and RoPE, number by number in float64 (equations 4 and 5)."""

import math

import numpy as np


def sinusoidal(n_positions, width):
    """PE[pos, 2i] = sin(pos / 10000^(2i/width)), PE[pos, 2i+1] = cos of the same."""
    table = np.zeros((n_positions, width))
    for position in range(n_positions):
        for i in range(width // 2):
            angle = position / 10_000 ** (2 * i / width)
            table[position][2 * i] = math.sin(angle)
            table[position][2 * i + 1] = math.cos(angle)
    return table


def rotate_as_in_the_paper(x, start, base):
    """Row t of x at position start + t: the pair (2i, 2i+1) turned by position * base^(-2i/width)."""
    rotated = np.zeros_like(x)
    width = len(x[0])
    for t in range(len(x)):
        for i in range(width // 2):
            angle = (start + t) * base ** (-2 * i / width)
            a, b = x[t][2 * i], x[t][2 * i + 1]
            rotated[t][2 * i] = a * math.cos(angle) - b * math.sin(angle)
            rotated[t][2 * i + 1] = b * math.cos(angle) + a * math.sin(angle)
    return rotated


def halves_to_pairs(width):
    """The fixed permutation between Llama's pairing and the paper's: (i, i + width/2) to (2i, 2i+1)."""
    return [index for i in range(width // 2) for index in (i, i + width // 2)]


def rotate(x, start, base):
    """RoPE with the pairing (i, i + width/2): the paper's, between a permutation and its inverse."""
    permutation = halves_to_pairs(len(x[0]))
    rotated = np.zeros_like(x)
    rotated[:, permutation] = rotate_as_in_the_paper(x[:, permutation], start, base)
    return rotated


def rotate_first(width, x, start, base):
    """Partial RoPE: the first `width` coordinates turn as a head of that width would, the others stay."""
    return np.concatenate([rotate(x[:, :width], start, base), x[:, width:]], axis=1)

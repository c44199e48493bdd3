"""Sinusoidal positions and RoPE, number by number in float64 (equations 4, 5, 49 and 55)."""

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


def rotate_as_in_the_paper(x, start, base, stretch=None):
    """Row t of x at position start + t: the pair (2i, 2i+1) turned by position * base^(-2i/width), or more slowly."""
    rotated = np.zeros_like(x)
    width = len(x[0])
    for t in range(len(x)):
        for i in range(width // 2):
            angle = (start + t) * slowed(i, width, base, stretch)
            a, b = x[t][2 * i], x[t][2 * i + 1]
            rotated[t][2 * i] = a * math.cos(angle) - b * math.sin(angle)
            rotated[t][2 * i + 1] = b * math.cos(angle) + a * math.sin(angle)
    return rotated if stretch is None else stretch.attention_factor * rotated


def slowed(i, width, base, stretch):
    """What is left of the speed of clock i, in radians per token."""
    speed = base ** (-2 * i / width)
    if stretch is None:
        return speed
    if stretch.linear_in == "clocks":
        here = -i
        fast, slow = (
            -number_of_clock(turns, width, base, stretch) for turns in (stretch.fast_turns, stretch.slow_turns)
        )
        fast, slow = min(math.ceil(fast), 0), max(math.floor(slow), 1 - width)
    else:
        here = stretch.trained_length * speed / (2 * math.pi)
        fast, slow = stretch.fast_turns, stretch.slow_turns
    if here >= fast:
        return speed
    if here <= slow:
        return speed / stretch.factor
    share = (here - slow) / (fast - slow)
    return share * speed + (1 - share) * speed / stretch.factor


def number_of_clock(turns, width, base, stretch):
    """Not whole: of the clock that makes so many turns in the context of training."""
    return width / 2 * math.log(stretch.trained_length / (2 * math.pi * turns), base)


def halves_to_pairs(width):
    """The fixed permutation between Llama's pairing and the paper's: (i, i + width/2) to (2i, 2i+1)."""
    return [index for i in range(width // 2) for index in (i, i + width // 2)]


def rotate(x, start, base, stretch=None):
    """RoPE with the pairing (i, i + width/2): the paper's, between a permutation and its inverse."""
    permutation = halves_to_pairs(len(x[0]))
    rotated = np.zeros_like(x)
    rotated[:, permutation] = rotate_as_in_the_paper(x[:, permutation], start, base, stretch)
    return rotated


def rotate_first(width, x, start, base, stretch=None):
    """Partial RoPE: the first `width` coordinates turn as a head of that width would, the others stay."""
    return np.concatenate([rotate(x[:, :width], start, base, stretch), x[:, width:]], axis=1)

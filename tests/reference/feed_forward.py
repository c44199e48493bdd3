"""The feed-forward layer and its activations, number by number in float64 (equation 11)."""

import math

import numpy as np

from reference.attention import linear


def relu(value):
    return max(0.0, value)


def gelu(value):
    """value times the probability that a standard normal variable is below it."""
    return value * 0.5 * (1 + math.erf(value / math.sqrt(2)))


def gelu_tanh(value):
    """GELU with a tanh in the place of the error function, as in GPT-2 (Hendrycks and Gimpel 2016)."""
    return value * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))


def relu_squared(value):
    return max(0.0, value) ** 2


def silu(value):
    return value / (1 + math.exp(-value))


def apply(function, x):
    return np.array([[function(value) for value in row] for row in x])


def feed_forward(x, activation, W_1, b_1, W_2, b_2):
    """W_2 activation(W_1 x + b_1) + b_2 for every row of x."""
    return linear(apply(activation, linear(x, W_1, b_1)), W_2, b_2)


def gated(x, activation, W_gate, b_gate, W_1, b_1, W_2, b_2):
    """W_2 (activation(W_gate x + b_gate) (W_1 x + b_1)) + b_2 for every row of x."""
    return linear(apply(activation, linear(x, W_gate, b_gate)) * linear(x, W_1, b_1), W_2, b_2)

"""Layer norm and RMS norm, number by number in float64 (equation 10)."""

import math

import numpy as np

EPSILON = 1e-5


def layer_norm(x, gain, bias, epsilon=EPSILON):
    """gain (x - mean) / sqrt(variance + epsilon) + bias for every row of x."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        mean = sum(x[t]) / len(x[t])
        variance = sum((value - mean) ** 2 for value in x[t]) / len(x[t])
        for i in range(len(x[t])):
            y[t][i] = gain[i] * (x[t][i] - mean) / math.sqrt(variance + epsilon) + bias[i]
    return y


def rms_norm(x, gain, epsilon=EPSILON):
    """gain x / sqrt(mean of squares + epsilon) for every row of x."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        mean_square = sum(value**2 for value in x[t]) / len(x[t])
        for i in range(len(x[t])):
            y[t][i] = gain[i] * x[t][i] / math.sqrt(mean_square + epsilon)
    return y

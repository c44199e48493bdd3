"""The neural n-gram model of Bengio et al. (2003) for one sequence, token by token in float64 (equation 34)."""

import math

import numpy as np

from reference.attention import linear
from reference.feed_forward import apply, relu

ACTIVATIONS = {"tanh": math.tanh, "relu": relu}


def mlp(tokens, config, weights):
    """Logits (T, V) of one sequence of token ids, for any MLPConfig. `weights`: parameter names to float64 arrays."""
    embedding = weights["embeddings.embedding_VD"]
    unembedding = embedding if config.tied_embeddings else weights["embeddings.unembedding_VD"]
    logits = []
    for t in range(len(tokens)):
        side_by_side = []
        for place in range(t - config.window + 1, t + 1):
            side_by_side += [0.0] * config.d_model if place < 0 else list(embedding[tokens[place]])
        W_1, b_1 = weights["blocks.0.W_1.weight"], weights["blocks.0.W_1.bias"]
        W_2 = weights["blocks.0.W_2.weight"]
        hidden = apply(ACTIVATIONS[config.activation], linear([side_by_side], W_1, b_1))
        x = linear(hidden, W_2, np.zeros(config.d_model))
        logits += list(linear(x, unembedding, np.zeros(len(unembedding))))
    return np.array(logits)

"""Attention as the lecture writes it: loops over numbers in float64. Slow, and easy to see to be right.

Positions are rows. q[t], k[s] and v[s] are vectors of one head.
"""

import math

import numpy as np


def attention(q, k, v, causal=True, window=None, cap=None):
    """Equations 7 and 8: each query's softmax over the keys it may see. q (T, K), k (S, K), v (S, K).

    With a window, these are the last so many of them (equation 39). A cap bounds the scores (equation 57).
    """
    n_queries, n_keys, width = len(q), len(k), len(q[0])
    output = np.zeros((n_queries, v.shape[1]))
    for t in range(n_queries):
        last_visible = t + n_keys - n_queries if causal else n_keys - 1
        first_visible = 0 if window is None else max(0, last_visible - window + 1)
        exponentials = {}
        for s in range(first_visible, last_visible + 1):
            score = sum(q[t][i] * k[s][i] for i in range(width)) / math.sqrt(width)
            exponentials[s] = math.exp(score if cap is None else cap * math.tanh(score / cap))
        for s in exponentials:
            for i in range(v.shape[1]):
                output[t][i] += exponentials[s] / sum(exponentials.values()) * v[s][i]
    return output


def linear_attention(q, k, v, rotate_q=lambda x: x, rotate_k=lambda x: x):
    """Equation 38: each query's mean of the values so far, weighted by phi(q) . phi(k); RoPE turns the numerator's."""
    q, k = feature_map(q), feature_map(k)
    turned_q, turned_k = rotate_q(q), rotate_k(k)
    output = np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        sum_of_weights = 1e-6
        for s in range(t + 1):
            sum_of_weights += sum(q[t][i] * k[s][i] for i in range(len(q[0])))
        for s in range(t + 1):
            weight = sum(turned_q[t][i] * turned_k[s][i] for i in range(len(q[0]))) / sum_of_weights
            for i in range(v.shape[1]):
                output[t][i] += weight * v[s][i]
    return output


def feature_map(x):
    """phi(x) = elu(x) + 1."""
    return np.array([[number + 1 if number > 0 else math.exp(number) for number in row] for row in x])


def linear(x, weight, bias):
    """y[t][n] = sum over m of weight[n][m] x[t][m], + bias[n]. x (T, M), weight (N, M)."""
    y = np.zeros((len(x), len(weight)))
    for t in range(len(x)):
        for n in range(len(weight)):
            for m in range(len(x[0])):
                y[t][n] += weight[n][m] * x[t][m]
            y[t][n] += bias[n]
    return y


def multi_head_attention(
    x, *, n_heads, n_kv_heads, W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O, attend, before_heads=lambda x, which: x
):
    """Equation 9. `attend` gets a head's (T, K) queries, keys and values: norm, rotation, then attention.

    `before_heads` gets the queries, or keys, of all heads.
    """
    width = len(W_Q) // n_heads
    queries, keys = before_heads(linear(x, W_Q, b_Q), "query"), before_heads(linear(x, W_K, b_K), "key")
    values = linear(x, W_V, b_V)
    heads = np.zeros((len(x), n_heads * width))
    for head in range(n_heads):
        kv_head = head * n_kv_heads // n_heads
        own = slice(head * width, (head + 1) * width)
        shared = slice(kv_head * width, (kv_head + 1) * width)
        heads[:, own] = attend(queries[:, own], keys[:, shared], values[:, shared])
    return linear(heads, W_O, b_O)

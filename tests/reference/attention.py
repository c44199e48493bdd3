"""Attention as the lecture writes it: loops over numbers in float64. Slow, and easy to see to be right.

Positions are rows. q[t], k[s] and v[s] are vectors of one head.
"""

import math

import numpy as np


def attention(q, k, v, causal=True):
    """Equations 7 and 8: each query's softmax over the keys it may see. q (T, K), k (S, K), v (S, K)."""
    n_queries, n_keys, width = len(q), len(k), len(q[0])
    output = np.zeros((n_queries, v.shape[1]))
    for t in range(n_queries):
        last_visible = t + n_keys - n_queries if causal else n_keys - 1
        exponentials = []
        for s in range(last_visible + 1):
            score = sum(q[t][i] * k[s][i] for i in range(width)) / math.sqrt(width)
            exponentials.append(math.exp(score))
        for s in range(last_visible + 1):
            for i in range(v.shape[1]):
                output[t][i] += exponentials[s] / sum(exponentials) * v[s][i]
    return output


def linear(x, weight, bias):
    """y[t][n] = sum over m of weight[n][m] x[t][m], + bias[n]. x (T, M), weight (N, M)."""
    y = np.zeros((len(x), len(weight)))
    for t in range(len(x)):
        for n in range(len(weight)):
            for m in range(len(x[0])):
                y[t][n] += weight[n][m] * x[t][m]
            y[t][n] += bias[n]
    return y


def multi_head_attention(x, *, n_heads, n_kv_heads, W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O, each_q, each_k):
    """Equation 9. `each_q` and `each_k` are applied to a head's (T, K) queries and keys: norm, rotation."""
    width = len(W_Q) // n_heads
    queries, keys, values = linear(x, W_Q, b_Q), linear(x, W_K, b_K), linear(x, W_V, b_V)
    heads = np.zeros((len(x), n_heads * width))
    for head in range(n_heads):
        kv_head = head * n_kv_heads // n_heads
        own = slice(head * width, (head + 1) * width)
        shared = slice(kv_head * width, (kv_head + 1) * width)
        heads[:, own] = attention(each_q(queries[:, own]), each_k(keys[:, shared]), values[:, shared])
    return linear(heads, W_O, b_O)

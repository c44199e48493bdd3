"""A mixture of experts, token by token (equation 40), and its load balance (equation 41)."""

import math

import numpy as np


def softmax(scores):
    exponentials = [math.exp(score - max(scores)) for score in scores]
    return [value / sum(exponentials) for value in exponentials]


def likeliest(probabilities, top_k):
    """The numbers of the likeliest experts."""
    return sorted(range(len(probabilities)), key=lambda i: -probabilities[i])[:top_k]


def mixture(x, router, experts, shared, top_k):
    """For every row of x; experts are functions from one vector to another."""
    rows = []
    for vector in x:
        probabilities = softmax([float(np.dot(row, vector)) for row in router])
        chosen = likeliest(probabilities, top_k)
        total = sum(probabilities[i] for i in chosen)
        answer = sum(probabilities[i] / total * experts[i](vector) for i in chosen)
        rows.append(answer + sum(expert(vector) for expert in shared))
    return np.array(rows)


def load_balance(probabilities, top_k):
    """E Σ f_i P_i for one row's tokens, each with its list of probabilities."""
    n, n_experts = len(probabilities), len(probabilities[0])
    total = 0.0
    for i in range(n_experts):
        f = sum(i in likeliest(token, top_k) for token in probabilities) / n
        total += f * sum(token[i] for token in probabilities) / n
    return n_experts * total

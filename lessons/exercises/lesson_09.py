"""Lesson 9: attention. Write what is missing, then run `pellucid learn 9`.

The last letters of a name are the axes: B texts, T positions that ask (queries), S positions that answer (keys),
D numbers per position, H heads, K numbers per head.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def softmax(scores: Array, axis: int) -> Array:
    """Scores as shares: positive, and their sum along the axis is 1."""
    raised = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return raised / raised.sum(axis=axis, keepdims=True)


# ---- One head ----


def head(x_TD: Array, W_Q: Array, W_K: Array, W_V: Array) -> tuple[Array, Array]:
    """One head without a mask: its weights (T, T) and its outputs (T, K), as a pair.

    Row t of x is what position t knows. The matrices have the shape (K, D), so `x_TD @ W_Q.T` has the query of position
    t in its row t. Row t of the weights says how much position t takes from each position.
    """
    # solution:
    q_TK, k_TK, v_TK = x_TD @ W_Q.T, x_TD @ W_K.T, x_TD @ W_V.T
    weights_TS = softmax(q_TK @ k_TK.T / np.sqrt(q_TK.shape[1]), axis=1)
    return weights_TS, weights_TS @ v_TK
    # end


def causal_weights(scores_TS: Array) -> Array:
    """The weights of attention that cannot look ahead, of the same shape as the scores; their rows sum to 1.

    Scores may be of any size. The queries are the last T of the S positions: with T = S all of them, with T = 1 the
    newest. There may be more axes in front of (T, S), for texts and heads.
    """
    # solution:
    T, S = scores_TS.shape[-2:]
    is_in_future = np.arange(S) > np.arange(S - T, S)[:, None]
    return softmax(np.where(is_in_future, -np.inf, scores_TS), axis=-1)
    # end


# ---- Several heads ----


def split_heads(x_BTD: Array, n_heads: int) -> Array:
    """Queries, keys or values (B, T, D) cut into heads: (B, H, T, K) with K = D / H.

    Head 0 gets the first K numbers of every position, head 1 the next K, and so on.
    """
    # solution:
    B, T, D = x_BTD.shape
    return x_BTD.reshape(B, T, n_heads, D // n_heads).transpose(0, 2, 1, 3)
    # end


def heads_by_einsum(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> Array:
    """The outputs (B, T, H, K) of causal heads, whose axes were not moved: two calls of np.einsum.

    Scale the scores, and use `causal_weights` between the two: it takes the last two axes for queries and keys.
    """
    # solution:
    scores_BHTS = np.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) / np.sqrt(q_BTHK.shape[-1])
    return np.einsum("bhts,bshk->bthk", causal_weights(scores_BHTS), v_BSHK)
    # end


# ---- Positions ----


def rotate(x_TK: Array, start: int = 0) -> Array:
    """RoPE: turn the queries or keys x (…, T, K), the first of which stands at position `start`.

    Numbers i and i + K/2 of a row are a pair (a, b): the tip of a clock's hand. At position t the hand of pair i has
    turned by t · 10000^(-2i/K) radians, counterclockwise: (a cos - b sin, b cos + a sin).
    """
    # solution:
    T, K = x_TK.shape[-2:]
    speeds = 10_000.0 ** (-np.arange(0, K, 2) / K)
    angles = np.outer(np.arange(start, start + T), speeds)
    a, b = x_TK[..., : K // 2], x_TK[..., K // 2 :]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)
    # end


# ---- Another text, and the whole ----


def cross_attention(x_TD: Array, source_SD: Array, W_Q: Array, W_K: Array, W_V: Array) -> Array:
    """The outputs (T, K) of one head, through which each position of x looks up something in another text, `source`.

    All of the source may be seen.
    """
    # solution:
    q_TK, k_SK, v_SK = x_TD @ W_Q.T, source_SD @ W_K.T, source_SD @ W_V.T
    return softmax(q_TK @ k_SK.T / np.sqrt(q_TK.shape[1]), axis=1) @ v_SK
    # end


def multi_head_attention(x_BTD: Array, W_Q: Array, W_K: Array, W_V: Array, W_O: Array, n_heads: int) -> Array:
    """Causal attention with several heads and RoPE: (B, T, D) to (B, T, D). The matrices have the shape (D, D).

    Rotate the queries and keys of every head. Lay the outputs of the heads side by side, head 0 first, and mix them
    with W_O.
    """
    # solution:
    B, T, D = x_BTD.shape
    q_BHTK, k_BHSK, v_BHSK = (split_heads(x_BTD @ W.T, n_heads) for W in (W_Q, W_K, W_V))
    scores_BHTS = rotate(q_BHTK) @ rotate(k_BHSK).swapaxes(-1, -2) / np.sqrt(D // n_heads)
    y_BHTK = causal_weights(scores_BHTS) @ v_BHSK
    return y_BHTK.transpose(0, 2, 1, 3).reshape(B, T, D) @ W_O.T
    # end

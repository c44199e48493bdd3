"""Lesson 12: looking inside. Write what is missing, then run `pellucid learn 12`.

The last letters of a name are the axes: N points of the stream, or the parts that add up to it, T positions,
D numbers per position, V tokens in the vocabulary, F fables, K states of a chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

Array = np.ndarray


def layer_norm(x: Array, gain_D: Array) -> Array:
    """Each vector (its numbers on the last axis) less its mean, over its standard deviation, times the gain.

    1e-5 is added to the variance, so that a vector of equal numbers is not divided by 0.
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    return gain_D * centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


# ---- The stream, read off ----


def contributions(parts_ND: Array, gain_D: Array, unembedding_D: Array) -> Array:
    """What each of N parts adds to the logit of one token: N numbers whose sum is the logit.

    The stream is the sum of the parts. The logit is the product of `unembedding_D` with `layer_norm(sum, gain_D)`.
    """
    # solution:
    centred_ND = parts_ND - parts_ND.mean(axis=1, keepdims=True)
    deviation = np.sqrt(parts_ND.sum(axis=0).var() + 1e-5)
    return (gain_D * centred_ND / deviation) @ unembedding_D
    # end


def lens(residuals_NTD: Array, gain_D: Array, unembedding_VD: Array) -> Array:
    """The logit lens: at each point n of the stream and each position t, the probabilities (N, T, V) of all tokens.

    Read the stream at each point as if it were the last one: final norm (`layer_norm` with this gain), unembedding,
    softmax.
    """
    # solution:
    logits_NTV = layer_norm(residuals_NTD, gain_D) @ unembedding_VD.T
    raised_NTV = np.exp(logits_NTV - logits_NTV.max(axis=-1, keepdims=True))
    return raised_NTV / raised_NTV.sum(axis=-1, keepdims=True)
    # end


# ---- Take it out, or put another in its place ----


def knocked_out_difference(intact_F: Array, without_F: Array) -> tuple[float, float]:
    """The mean rise of the loss, and the half width of its 95 % interval, from the losses of the same F fables.

    1.96 standard errors of the mean to each side. The deviation of a sample has F - 1 in its denominator.
    """
    # solution:
    rise_F = np.asarray(without_F) - np.asarray(intact_F)
    return rise_F.mean(), 1.96 * rise_F.std(ddof=1) / np.sqrt(len(rise_F))
    # end


def patched(layers: list[Callable[[Array], Array]], x: Array, other: Array, place: int) -> Array:
    """The end of the stream that begins with x, if the *output* of layer `place` comes from the text `other`.

    A layer maps the stream to what it adds to it: x ← x + layer(x). The run on `other` is a run as usual. In the run
    on x, the layer at `place` adds what it added there; all other layers compute as usual, those after it too.
    """
    # solution:
    for layer in layers[:place]:
        x, other = x + layer(x), other + layer(other)
    x = x + layers[place](other)
    for layer in layers[place + 1 :]:
        x = x + layer(x)
    return x
    # end


# ---- A prior on the first token ----


def head_with_a_sink(states: list[int], k: int, alpha: float) -> tuple[Array, float]:
    """What a head of attention says of the next of k states, (K,), and its weight on the first token, as a pair.

    `states` are the states so far, numbers from 0 to k - 1; the last is the one now. The head sees each earlier step
    from the state now: its score is 0, and its value is 1 for the state that it led to and 0 for the others. And it
    sees the token before the text: its score is ln(k · alpha), and its value is 1/k for each state. That is all.
    """
    # solution:
    led_to = [after for before, after in pairwise(states) if before == states[-1]]
    scores = np.array([math.log(k * alpha)] + [0.0] * len(led_to))
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    values = np.array([np.full(k, 1 / k)] + [np.eye(k)[after] for after in led_to])
    return weights @ values, weights[0]
    # end


# ---- Depth as time ----


def euler(f: Callable[[Array, float], Array], x: Array, n_layers: int) -> Array:
    """Where x is at time 1, in n_layers equal steps. f(x, time) is its velocity.

    Layer l, counted from 0, stands at time l / n_layers. It lets x go straight on, with the velocity that it has there,
    for one step. The array that you get must be unchanged afterwards.
    """
    # solution:
    for layer in range(n_layers):
        x = x + f(x, layer / n_layers) / n_layers
    return x
    # end


def order_of_error(depths: Array, errors: Array) -> float:
    """The p in error ≈ c · depth^p: the slope of the best straight line through the points on log-log paper."""
    # solution:
    slope, _ = np.polyfit(np.log(depths), np.log(errors), 1)
    return slope
    # end


def attention_flow_step(x_TD: Array, beta: float, step: float, is_causal: bool) -> Array:
    """One step of T tokens on the sphere (rows of length 1): attention, a residual step, and back onto the sphere.

    The score of query t and key s is beta · (x_t · x_s). Token t moves by `step` times the mean of all rows, weighted
    with its shares, and is then divided by its length. All tokens move at once. If `is_causal`, a token sees no later
    one.
    """
    # solution:
    scores_TS = beta * x_TD @ x_TD.T
    if is_causal:
        scores_TS = np.where(np.tri(len(x_TD), dtype=bool), scores_TS, -np.inf)
    raised_TS = np.exp(scores_TS - scores_TS.max(axis=1, keepdims=True))
    moved_TD = x_TD + step * raised_TS @ x_TD / raised_TS.sum(axis=1, keepdims=True)
    return moved_TD / np.linalg.norm(moved_TD, axis=1, keepdims=True)
    # end


# ---- For the page and its figures ----


def turning(x: Array, time: float) -> Array:
    """A velocity whose flow is known: it turns a point of the plane, faster and faster, by 1 radian until time 1."""
    return 2 * time * np.array([-x[1], x[0]])


def tokens_on_the_sphere(n_tokens: int, width: int = 3, seed: int = 10) -> Array:
    """Random rows of length 1."""
    x_TD = np.random.default_rng(seed).standard_normal((n_tokens, width))
    return x_TD / np.linalg.norm(x_TD, axis=1, keepdims=True)

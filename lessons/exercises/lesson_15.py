"""Lesson 15: many machines. Write what is missing, then run `pellucid learn 15`.

All machines of this lesson live in one process: a device is an entry of a list. What one device tells another passes
through a function that counts it. At the end of this file, several devices train the decoder of lesson 10 together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lesson_01 import backward
from lesson_10 import Decoder, adamw_step, nats_of

Array = np.ndarray

# ---- Data parallelism ----


def average_gradient(gradients: Sequence[Array], counts: Sequence[int]) -> Array:
    """The gradient of the mean loss over all targets of all devices.

    Device i has counts[i] targets, and gradients[i] is the gradient of its own mean loss over them.
    """
    # solution:
    return sum(count * gradient for count, gradient in zip(counts, gradients, strict=True)) / sum(counts)
    # end


class Ring:
    """n devices in a ring: each can send to its right neighbour only. Counts the rounds, and what each device sends."""

    def __init__(self, n_devices: int) -> None:
        self.n_rounds, self.n_sent = 0, [0] * n_devices

    def pass_right(self, messages: Sequence[Array]) -> list[Array]:
        """One round: every device i sends messages[i]. Returns what each device receives from its left neighbour."""
        self.n_rounds += 1
        self.n_sent = [n + np.size(message) for n, message in zip(self.n_sent, messages, strict=True)]
        return [np.array(messages[i - 1], dtype=float) for i in range(len(messages))]


def ring_all_reduce(chunks: Sequence[Array], pass_right: Callable[[Sequence[Array]], list[Array]]) -> list[Array]:
    """The sum of what all n devices have, on every device, by 2 (n - 1) calls of pass_right.

    chunks[i] is what device i has, an array (n, C): n chunks of C numbers. Returns n arrays (n, C). In each call of
    pass_right, every device i hands over one chunk, messages[i]; entry i of the answer is what device i receives.
    """
    # solution:
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    for step in range(n - 1):
        received = pass_right([held[i][(i + 1 - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - step) % n] = received[i]
    return held
    # end


# ---- Stale gradients ----


def stale_step(history: Sequence[Array], gradient: Callable[[Array], Array], rate: float, delay: int) -> Array:
    """The next parameters, if a gradient arrives `delay` steps late.

    history holds the parameters of all steps so far, the newest last. With delay 0 this is gradient descent. While
    there are no parameters that old, the oldest take their place.
    """
    # solution:
    seen = history[max(len(history) - 1 - delay, 0)]
    return history[-1] - rate * gradient(seen)
    # end


def growth_per_step(rate: float, delay: int, n_steps: int = 1500) -> float:
    """By what factor theta grows per step on the loss theta²/2, in the long run; below 1 it goes to the bottom."""
    history = [np.array(1.0)]
    log_scale = 0.0
    for step in range(n_steps):
        history = [*history, stale_step(history, lambda theta: theta, rate, delay)][-delay - 1 :]
        if (largest := max(abs(float(theta)) for theta in history)) > 0 and len(history) == delay + 1:
            history = [theta / largest for theta in history]
            log_scale += math.log(largest) if step >= n_steps // 2 else 0.0
    return math.exp(log_scale / (n_steps - n_steps // 2))


def largest_stable_rate(delay: int) -> float:
    """The rate from which on theta²/2 is no longer descended, found by halving an interval."""
    low, high = 0.0, 2.5
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if growth_per_step(middle, delay) < 1 else (low, middle)
    return low


# ---- Tensor parallelism ----


def tensor_parallel_mlp(
    x: Array,
    W_1: Array,
    b_1: Array,
    W_2: Array,
    b_2: Array,
    n_devices: int,
    all_reduce: Callable[[Sequence[Array]], Array],
) -> Array:
    """W_2 max(0, W_1 x + b_1) + b_2 for each row of x (B, D), on n devices with a single sum: (B, E).

    W_1 is (F, D), b_1 (F,), W_2 (E, F), b_2 (E,), and n divides F. Each device uses its own n-th part of each
    matrix. `all_reduce` takes a list with an array of each device and returns their sum. Call it once.
    """
    # solution:
    partial = []
    for own in np.split(np.arange(len(W_1)), n_devices):
        hidden = np.maximum(0, x @ W_1[own].T + b_1[own])
        partial.append(hidden @ W_2[:, own].T)
    return all_reduce(partial) + b_2
    # end


# ---- Pipelines ----


def pipeline_schedule(n_stages: int, n_micro: int) -> tuple[Array, Array]:
    """When each stage works on each micro-batch: two arrays of whole numbers (n_stages, n_micro), forward and backward.

    Time is counted in slots 0, 1, 2, ... A pass of one micro-batch through one stage takes one slot. A stage does
    one thing at a time. Use as few slots as possible, 2 (n_micro + n_stages - 1) in all.
    """
    # solution:
    stage, micro = np.indices((n_stages, n_micro))
    return stage + micro, (n_micro + n_stages - 1) + (n_stages - 1 - stage) + micro
    # end


def bubble_share(n_stages: int, n_micro: int) -> float:
    """The share of all slots of all stages in which a stage waits."""
    # solution:
    return (n_stages - 1) / (n_micro + n_stages - 1)
    # end


def one_forward_one_backward(n_stages: int, n_micro: int) -> tuple[Array, Array]:
    """The same two arrays for 1F1B: after a few forward passes, each stage goes forward and backward in turn."""
    plans = []
    for stage in range(n_stages):
        n_first = min(n_stages - 1 - stage, n_micro)
        plan = [("F", j) for j in range(n_first)]
        for j in range(n_first, n_micro):
            plan += [("F", j), ("B", j - n_first)]
        plans.append(plan + [("B", j) for j in range(n_micro - n_first, n_micro)])
    when: dict[tuple[str, int, int], int] = {}
    slot = 0
    while any(plans):
        for stage, plan in enumerate(plans):
            if plan:
                kind, j = plan[0]
                neighbour = stage - 1 if kind == "F" else stage + 1
                if not 0 <= neighbour < n_stages or when.get((kind, neighbour, j), slot) < slot:
                    when[kind, stage, j] = slot
                    plan.pop(0)
        slot += 1
    forward, backward_ = (
        np.array([[when[kind, stage, j] for j in range(n_micro)] for stage in range(n_stages)]) for kind in "FB"
    )
    return forward, backward_


def most_kept(forward: Array, backward: Array) -> list[int]:
    """For how many micro-batches each stage keeps activations, at most: they have gone forward, but not yet back."""
    return [
        max(int(((there <= slot) & (back >= slot)).sum()) for slot in range(int(back.max()) + 1))
        for there, back in zip(forward, backward, strict=True)
    ]


# ---- Experts ----


def all_to_all(boxes: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """boxes[i][j] is what device i has for device j. Afterwards device j has, at [j][i], what i had for it."""
    return [[boxes[i][j] for i in range(len(boxes))] for j in range(len(boxes))]


# ---- Sharding ----


def bytes_per_device(n_parameters: int, n_devices: int, stage: int) -> float:
    """Bytes of weights, gradients and Adam's moments on each device, all in float32 (4 bytes for each number).

    Stage 0 copies everything. Stage 1 shards the moments, stage 2 the gradients too, stage 3 the weights too. What is
    sharded is cut into equal parts, one for each device.
    """
    # solution:
    numbers = [2, 1, 1]  # Adam's two moments, the gradient, the weight
    return sum(4 * n_parameters * n / (n_devices if i < stage else 1) for i, n in enumerate(numbers))
    # end


# ---- Several devices train, and call your functions ----


def train_together(
    decoders: Sequence[Decoder], batches: Iterator[Array], shares: Sequence[int], n_steps: int, peak: float
) -> Ring:
    """Data-parallel AdamW. Of each batch, device i reads shares[i] rows with its own copy, decoders[i].

    The gradients are summed by your ring. The learning rate rises for a tenth of the steps, then falls to 0, as in
    lesson 10.
    """
    n, ring = len(decoders), Ring(len(decoders))
    moments = [[(np.zeros(w.shape), np.zeros(w.shape)) for w in decoder.parameters()] for decoder in decoders]
    for step in range(1, n_steps + 1):
        rows = np.split(next(batches), np.cumsum(shares)[:-1])
        messages = []
        for decoder, own in zip(decoders, rows, strict=True):
            backward(nats_of(decoder, own).mean())
            flat = np.concatenate([w.gradient.ravel() for w in decoder.parameters()]) * len(own) / sum(shares)
            messages.append(np.pad(flat, (0, -len(flat) % n)).reshape(n, -1))
        rate = peak * min(step / (0.1 * n_steps), (n_steps - step) / (0.9 * n_steps))
        sums = ring_all_reduce(messages, ring.pass_right) if n > 1 else messages
        for decoder, summed, own_moments in zip(decoders, sums, moments, strict=True):
            start = 0
            for k, w in enumerate(decoder.parameters()):
                gradient = summed.ravel()[start : start + w.value.size].reshape(w.shape)
                start += w.value.size
                w.value, *own_moments[k] = adamw_step(
                    w.value, gradient, *own_moments[k], step, rate, 0.1 * (w.value.ndim == 2), betas=(0.9, 0.95)
                )
    return ring

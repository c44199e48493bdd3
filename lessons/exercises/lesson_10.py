"""Lesson 10: the block, the optimizers, and the whole decoder. Write what is missing, then run `pellucid learn 10`.

At the end of this file a decoder trains. It stands on the tape of lesson 1, and it calls your functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autodiff import operations as op
from autodiff.operations import Value
from autodiff.second import hessian
from autodiff.tape import gradient
from lesson_01 import Tensor, backward, concatenate, exp, log_softmax, relu, where

Array = np.ndarray

# ---- Depth: what arrives at the first of many layers ----


def gradient_norms(layer: Callable[[Tensor, Tensor], Tensor], scale: float, n_layers: int = 30) -> list[float]:
    """How long the gradient is at the input of each layer, and at the last output.

    `layer(x, W)` is one layer. Each has a random 32 x 32 matrix of its own; its numbers have the deviation
    scale/sqrt(32).
    """
    rng = np.random.default_rng(0)
    xs = [Tensor(rng.normal(size=(8, 32)))]
    for _ in range(n_layers):
        xs.append(layer(xs[-1], Tensor(rng.normal(size=(32, 32)) * scale / math.sqrt(32))))
    backward((xs[-1] * Tensor(rng.normal(size=(8, 32)))).sum())
    return [float(np.linalg.norm(x.gradient)) for x in xs]


# ---- The norm ----


def layer_norm(x: Array, gain: Array, epsilon: float = 1e-5) -> Array:
    """LayerNorm without bias (equation 10). x is (..., D): each vector of D numbers by itself. gain is (D,)."""
    # solution:
    centred = x - x.mean(axis=-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    # end


def pull_layer_norm(cotangent: Array, x: Array, gain: Array, epsilon: float = 1e-5) -> tuple[Array, Array]:
    """What x (..., D) and gain (D,) get, when layer_norm(x, gain) gets `cotangent` (..., D)."""
    # solution:
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    to_gain = (cotangent * normal).reshape(-1, len(gain)).sum(axis=0)
    to_normal = cotangent * gain
    along_ones = to_normal.mean(axis=-1, keepdims=True)
    along_normal = normal * (to_normal * normal).mean(axis=-1, keepdims=True)
    return (to_normal - along_ones - along_normal) / std, to_gain
    # end


# ---- The block ----


def pre_norm_block(
    x, attention_norm: Callable, attention: Callable, feed_forward_norm: Callable, feed_forward: Callable
):
    """What a block makes of x: attention, then feed-forward, both with pre-norm (equation 10).

    Each of the four is a function that takes an x and returns something of its shape.
    """
    # solution:
    x = x + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))
    # end


# ---- How large a step? ----


def largest_eigenvalue(product: Callable[[Array], Array], start: Array, n_rounds: int = 100) -> float:
    """The eigenvalue of H that is largest in size, with its sign. `product(v)` computes H v for a symmetric H.

    Begin with the vector `start` and multiply n_rounds times.
    """
    # solution:
    v = start
    for _ in range(n_rounds):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(v @ product(v))
    # end


def small_error(theta: Value) -> Value:
    """How far five tanh neurons, with the 15 parameters theta, are from sin(2x), plus a penalty on large parameters."""
    x = np.linspace(-2, 2, 20)
    hidden = op.tanh(x[:, None] * theta[0:5] + theta[5:10])
    return op.mean((hidden @ theta[10:15] - np.sin(2 * x)) ** 2) + 0.01 * op.sum_of(theta**2)


def near_minimum() -> Array:
    """Parameters at a minimum of small_error: gradient descent finds the valley, five steps of Newton its bottom."""
    theta = np.random.default_rng(0).normal(size=15)
    for _ in range(600):
        theta = theta - 0.2 * gradient(small_error, theta)
    for _ in range(5):
        theta = theta - np.linalg.solve(hessian(small_error, theta), gradient(small_error, theta))
    return theta


# ---- The optimizers ----


def adam_step(
    parameter: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    n: int,
    rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> tuple[Array, Array, Array]:
    """Adam's n-th update, n = 1, 2, ... (equations 15 and 28, no decay): the new parameter, mean and square.

    `mean` and `square` are the running means before the update, of the gradient and of its square. Both began at 0. The
    new ones that you return are not yet corrected.
    """
    # solution:
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    unbiased_mean = mean / (1 - betas[0] ** n)
    unbiased_square = square / (1 - betas[1] ** n)
    return parameter - rate * unbiased_mean / (np.sqrt(unbiased_square) + epsilon), mean, square
    # end


def adamw_step(
    parameter: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    n: int,
    rate: float,
    decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
) -> tuple[Array, Array, Array]:
    """AdamW's n-th update (equation 15): the new parameter, mean and square. It may call adam_step."""
    # solution:
    updated, mean, square = adam_step(parameter, gradient, mean, square, n, rate, betas)
    return updated - rate * decay * parameter, mean, square
    # end


def orthogonalised(gradient: Array) -> Array:
    """The gradient of a matrix, with its singular vectors, and with 1 in place of each singular value (equation 29)."""
    # solution:
    left, _, right = np.linalg.svd(gradient, full_matrices=False)
    return left @ right
    # end


# ---- The decoder, on the tape of lesson 1 ----


@dataclass
class Block:
    """The weights of one block. W_Q to W_O are (D, D), W_1 is (4D, D), W_2 is (D, 4D), and gains are (D,)."""

    attention_gain: Tensor
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    feed_forward_gain: Tensor
    W_1: Tensor
    W_2: Tensor


@dataclass
class Decoder:
    """All weights of a decoder. The embedding is (V, D), the final gain (D,)."""

    embedding: Tensor
    blocks: list[Block]
    final_gain: Tensor
    n_heads: int

    def parameters(self) -> list[Tensor]:
        """All weights in a fixed order, which is that of `pellucid.plain.Decoder` too."""
        return [self.embedding, *(weight for block in self.blocks for weight in vars(block).values()), self.final_gain]


def norm(x: Tensor, gain: Tensor) -> Tensor:
    """LayerNorm as one operation of the tape. Its two rules are yours."""
    pulls = [(each, lambda r, i=i: pull_layer_norm(r, x.value, gain.value)[i]) for i, each in enumerate((x, gain))]
    return Tensor(layer_norm(x.value, gain.value), pulls)


def linear(x: Tensor, W: Tensor) -> Tensor:
    """W times each vector of x: (..., D) -> (..., number of rows of W)."""
    return x @ W.T


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, K)."""
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, D // n_heads).swap_axes(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, K) -> (B, T, D)."""
    B, H, T, K = x.shape
    return x.swap_axes(1, 2).reshape(B, T, H * K)


def rotate(x: Tensor) -> Tensor:
    """Queries or keys (B, H, T, K), turned by their position: RoPE (equation 5)."""
    T, K = x.shape[-2:]
    angles = np.outer(np.arange(T), 10_000.0 ** (-np.arange(0, K, 2) / K))
    a, b = x[..., : K // 2], x[..., K // 2 :]
    return concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)])


def decoder_logits(tokens: Array, decoder: Decoder) -> Tensor:
    """The logits (B, T, V) of a decoder for tokens (B, T), by equation 45. Those at t depend on tokens 0 ... t alone.

    The pieces stand above: norm, linear, split_heads, join_heads, rotate, pre_norm_block. From lesson 1 come relu, exp,
    log_softmax, and `where(mask, x, other)`: x where the mask is true, the number `other` elsewhere. There is no
    unembedding matrix: the embedding is used once more (equation 3).
    """
    # solution:
    T = tokens.shape[1]
    can_be_seen = np.tril(np.ones((T, T), dtype=bool))
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x: Tensor, block: Block = block) -> Tensor:
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1])
            weights = exp(log_softmax(where(can_be_seen, scores, -np.inf)))
            return linear(join_heads(weights @ v), block.W_O)

        def feed_forward(x: Tensor, block: Block = block) -> Tensor:
            return linear(relu(linear(x, block.W_1)) ** 2, block.W_2)

        x = pre_norm_block(
            x,
            lambda x, block=block: norm(x, block.attention_gain),
            attention,
            lambda x, block=block: norm(x, block.feed_forward_gain),
            feed_forward,
        )
    return linear(norm(x, decoder.final_gain), decoder.embedding)
    # end


# ---- Its training, which calls your functions ----


def new_decoder(vocab_size: int, width: int, n_heads: int, n_layers: int, seed: int) -> Decoder:
    """Random weights: matrices of the deviation sqrt(2 / 5D), which is Glorot's for W_1 (equation 30)."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return Tensor(rng.normal(size=(rows, columns)) * math.sqrt(2 / (5 * width)))

    def gain() -> Tensor:
        return Tensor(np.ones(width))

    def block() -> Block:
        W_Q, W_K, W_V, W_O = (matrix(width, width) for _ in range(4))
        return Block(gain(), W_Q, W_K, W_V, W_O, gain(), matrix(4 * width, width), matrix(width, 4 * width))

    embedding = Tensor(rng.normal(size=(vocab_size, width)) * 0.2)
    return Decoder(embedding, [block() for _ in range(n_layers)], gain(), n_heads)


def nats_of(decoder: Decoder, rows: Array) -> Tensor:
    """-ln p of each token of the rows (B, T + 1) but the first, given those before it: (B, T)."""
    inputs, targets = rows[:, :-1], rows[:, 1:]
    B, T = targets.shape
    return -log_softmax(decoder_logits(inputs, decoder))[np.arange(B)[:, None], np.arange(T), targets]


def train(decoder: Decoder, batches: Iterator[Array], n_steps: int, peak: float, decay: float = 0.1) -> Iterator[int]:
    """AdamW, with a learning rate that rises for a tenth of the steps and then falls to 0. Yields after each step."""
    parameters = decoder.parameters()
    means = [np.zeros(p.shape) for p in parameters]
    squares = [np.zeros(p.shape) for p in parameters]
    for n in range(1, n_steps + 1):
        backward(nats_of(decoder, next(batches)).mean())
        rate = peak * min(n / (0.1 * n_steps), (n_steps - n) / (0.9 * n_steps))
        for i, p in enumerate(parameters):
            is_matrix = p.value.ndim == 2  # a gain has no reason to be small
            p.value, means[i], squares[i] = adamw_step(
                p.value, p.gradient, means[i], squares[i], n, rate, decay * is_matrix, betas=(0.9, 0.95)
            )
        yield n


# ---- A language whose fables can all be listed ----

CALLS = {"fox": "yapped", "hen": "clucked", "cat": "purred", "dog": "barked", "pig": "grunted"}
ANIMALS, PLACES = list(CALLS), ["lake", "hill", "barn", "road"]
WORDS = ["<end>", "a", "met", "by", "the", ".", *ANIMALS, *CALLS.values(), *PLACES]


def all_fables() -> Iterator[tuple[str, float]]:
    """Every fable of the tiny language with its probability."""
    for hero in ANIMALS:
        for other in ANIMALS:
            for place in PLACES:
                for speaker in (hero, other):
                    if other != hero:
                        text = f"a {hero} met a {other} by the {place} . the {speaker} {CALLS[speaker]} ."
                        yield text, (1 / 2 if hero == "fox" else 1 / 8) * 1 / 4 * 1 / 4 * 1 / 2


def encoded(fable: str) -> list[int]:
    """The tokens of a fable, with the <end> before it and its own."""
    return [WORDS.index(word) for word in ["<end>", *fable.split(), "<end>"]]


def drawn_fables(rng: np.random.Generator, rows: Array, p: Array, n: int) -> Iterator[Array]:
    """Batches of n fables, each row drawn with its probability."""
    while True:
        yield rows[rng.choice(len(rows), size=n, p=p)]


def nats_without_looking_back(rows: Array, p: Array) -> float:
    """The least loss per token for who knows the position and the last word, but nothing older."""
    total = 0.0
    for t in range(rows.shape[1] - 1):
        pairs = np.zeros((len(WORDS), len(WORDS)))
        np.add.at(pairs, (rows[:, t], rows[:, t + 1]), p)
        last, _ = np.nonzero(pairs)
        total -= float((pairs[pairs > 0] * np.log(pairs[pairs > 0] / pairs.sum(axis=1)[last])).sum())
    return total / (rows.shape[1] - 1)


# ---- The judge: PyTorch ----


def in_pytorch(tokens: Array, targets: Array, decoder: Decoder) -> tuple[Array, list[Array]]:
    """What `pellucid.plain.Decoder` makes of the same weights: its logits, and the gradients of the mean loss."""
    from unittest.mock import patch

    import torch

    from pellucid import plain

    V, D = decoder.embedding.shape
    sizes = {"D_MODEL": D, "N_HEADS": decoder.n_heads, "N_LAYERS": len(decoder.blocks)}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.multiple(plain, **sizes):
            model = plain.Decoder(V)
            with torch.no_grad():
                for theirs, ours in zip(model.parameters(), decoder.parameters(), strict=True):
                    theirs.copy_(torch.tensor(ours.value))
            logits = model(torch.tensor(tokens))
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten()).backward()
    finally:
        torch.set_default_dtype(before)
    return logits.detach().numpy(), [p.grad.numpy() for p in model.parameters()]

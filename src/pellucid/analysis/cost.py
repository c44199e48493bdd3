"""What a decoder costs, counted on paper: parameters, FLOPs and memory, before anything is built.

Plain arithmetic on the sizes, without torch. The tests hold the counts against the built model, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_NUMBER = 4  # float32, in which weights, gradients and moments are kept, also when computing in bfloat16


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a decoder, and the choices that add or remove parameters."""

    vocab_size: int
    context_length: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    tied_embeddings: bool = False
    learned_positions: bool = False
    gated_feed_forward: bool = False  # SwiGLU's third matrix
    bias: bool = False  # in the linear layers
    qk_norm: bool = False
    norm_bias: bool = False  # LayerNorm's, besides the gain
    final_norm: bool = True  # pre-norm only

    @property
    def d_kv(self) -> int:
        """Width of all key (or value) heads together: d_model, or less when heads share them."""
        return self.n_kv_heads * self.d_model // self.n_heads


@dataclass(frozen=True)
class Parameters:
    """Number of weights, by part (equation 12). Tied: the unembedding is the embedding and counts 0."""

    embedding: int
    positions: int
    attention: int
    feed_forward: int
    norms: int
    unembedding: int
    total: int


@dataclass(frozen=True)
class Flops:
    """Floating-point operations in matrix products for one full context, forward (equation 13).

    `attention_pairs` is the part that grows with the square of the length: queries times keys and weights
    times values, counted for all T x T pairs. A training step takes twice the forward pass again for
    its backward pass: one product for each factor's gradient.
    """

    attention_projections: int
    attention_pairs: int
    feed_forward: int
    unembedding: int
    forward: int
    training: int


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes in float32 (equation 14); activations, which depend on the batch, come on top of training.

    The cache is per token and sequence, and takes half of this in bfloat16.
    """

    weights: int
    gradients: int
    adam_moments: int
    training: int
    kv_cache_per_token: int


@dataclass(frozen=True)
class Cost:
    """Everything that can be counted from a model's shape."""

    parameters: Parameters
    flops: Flops
    memory_bytes: MemoryBytes


def count_cost(shape: Shape) -> Cost:
    """Parameters, FLOPs per sequence of context_length tokens, and memory of a decoder of this shape."""
    parameters = count_parameters(shape)
    return Cost(parameters, count_flops(shape), count_memory(shape, parameters.total))


def count_parameters(shape: Shape) -> Parameters:
    d_model, n_layers = shape.d_model, shape.n_layers
    embedding = shape.vocab_size * d_model
    attention = 2 * linear(d_model, d_model, shape.bias) + 2 * linear(d_model, shape.d_kv, shape.bias)
    n_in = 2 if shape.gated_feed_forward else 1
    feed_forward = n_in * linear(d_model, shape.d_ff, shape.bias) + linear(shape.d_ff, d_model, shape.bias)
    normed_widths = (2 * n_layers + shape.final_norm) * d_model
    if shape.qk_norm:
        normed_widths += 2 * n_layers * d_model // shape.n_heads
    parts = {
        "embedding": embedding,
        "positions": shape.context_length * d_model if shape.learned_positions else 0,
        "attention": n_layers * attention,
        "feed_forward": n_layers * feed_forward,
        "norms": (1 + shape.norm_bias) * normed_widths,
        "unembedding": 0 if shape.tied_embeddings else embedding,
    }
    return Parameters(**parts, total=sum(parts.values()))


def linear(n_inputs: int, n_outputs: int, bias: bool) -> int:
    """Parameters of one linear layer."""
    return n_inputs * n_outputs + (n_outputs if bias else 0)


def count_flops(shape: Shape) -> Flops:
    T, d_model = shape.context_length, shape.d_model
    n_feed_forward = 3 if shape.gated_feed_forward else 2
    parts = {
        "attention_projections": shape.n_layers * 2 * product(T, d_model, d_model)
        + shape.n_layers * 2 * product(T, d_model, shape.d_kv),
        "attention_pairs": shape.n_layers * 2 * product(T, d_model, T),
        "feed_forward": shape.n_layers * n_feed_forward * product(T, d_model, shape.d_ff),
        "unembedding": product(T, d_model, shape.vocab_size),
    }
    forward = sum(parts.values())
    return Flops(**parts, forward=forward, training=3 * forward)


def product(n: int, m: int, p: int) -> int:
    """FLOPs of an n x m by m x p matrix product: a multiplication and an addition per term."""
    return 2 * n * m * p


def count_memory(shape: Shape, n_parameters: int) -> MemoryBytes:
    weights = BYTES_PER_NUMBER * n_parameters
    return MemoryBytes(
        weights=weights,
        gradients=weights,
        adam_moments=2 * weights,
        training=4 * weights,
        kv_cache_per_token=BYTES_PER_NUMBER * 2 * shape.n_layers * shape.d_kv,
    )

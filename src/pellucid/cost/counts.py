"""What a decoder costs, counted on paper: parameters and FLOPs, before anything is built.

Plain arithmetic on the sizes, without torch. The tests hold the counts against the built model, exactly. What depends
on how it is trained stands beside: memory.py, with activations.py, and step_time.py.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    def head_width(self) -> int:
        return self.d_model // self.n_heads

    @property
    def d_kv(self) -> int:
        """Width of all key (or value) heads together: d_model, or less when heads share them."""
        return self.n_kv_heads * self.head_width

    @property
    def attention_matrices(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a block's W_Q, W_K, W_V and W_O."""
        return [(self.d_model, self.d_model), *2 * [(self.d_model, self.d_kv)], (self.d_model, self.d_model)]

    @property
    def feed_forward_matrices(self) -> list[tuple[int, int]]:
        """Inputs and outputs of a block's W_1, of W_gate where there is one, and of W_2."""
        return [*(1 + self.gated_feed_forward) * [(self.d_model, self.d_ff)], (self.d_ff, self.d_model)]


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
    """Floating-point operations in matrix products, for one token of a full context (equation 13).

    `attention_pairs` is the part that grows with the length: a query's product with each key, and its weights'
    with each value, counted for all T keys, also those that the mask hides.
    """

    attention_projections: int
    attention_pairs: int
    feed_forward: int
    unembedding: int
    total: int


@dataclass(frozen=True)
class Cost:
    """Everything that can be counted from a model's shape.

    Training takes three times the forward pass: going back, a product for each factor's gradient.
    """

    parameters: Parameters
    forward_flops_per_token: Flops
    training_flops_per_token: Flops


def count_cost(shape: Shape) -> Cost:
    """Parameters, and FLOPs per token at the full context, of a decoder of this shape."""
    return Cost(count_parameters(shape), count_flops(shape, passes=1), count_flops(shape, passes=3))


def count_parameters(shape: Shape) -> Parameters:
    d_model, n_layers = shape.d_model, shape.n_layers
    embedding = shape.vocab_size * d_model
    normed_widths = (2 * n_layers + shape.final_norm) * d_model
    if shape.qk_norm:
        normed_widths += 2 * n_layers * shape.head_width
    parts = {
        "embedding": embedding,
        "positions": shape.context_length * d_model if shape.learned_positions else 0,
        "attention": n_layers * sum(linear(*sizes, shape.bias) for sizes in shape.attention_matrices),
        "feed_forward": n_layers * sum(linear(*sizes, shape.bias) for sizes in shape.feed_forward_matrices),
        "norms": (1 + shape.norm_bias) * normed_widths,
        "unembedding": 0 if shape.tied_embeddings else embedding,
    }
    return Parameters(**parts, total=sum(parts.values()))


def linear(n_inputs: int, n_outputs: int, bias: bool) -> int:
    """Parameters of one linear layer."""
    return n_inputs * n_outputs + (n_outputs if bias else 0)


def count_flops(shape: Shape, passes: int) -> Flops:
    """Per token, for so many times the work of the forward pass."""
    d_model, n_layers = shape.d_model, shape.n_layers
    parts = {
        "attention_projections": n_layers * sum(product(1, n, m) for n, m in shape.attention_matrices),
        "attention_pairs": n_layers * 2 * product(1, d_model, shape.context_length),
        "feed_forward": n_layers * sum(product(1, n, m) for n, m in shape.feed_forward_matrices),
        "unembedding": product(1, d_model, shape.vocab_size),
    }
    parts = {name: passes * flops for name, flops in parts.items()}
    return Flops(**parts, total=sum(parts.values()))


def product(n: int, m: int, p: int) -> int:
    """FLOPs of an n x m by m x p matrix product: a multiplication and an addition per term."""
    return 2 * n * m * p

"""What training keeps of the forward pass for the backward pass, tensor by tensor, in bytes.

The gradient of a product needs both factors, that of a norm its input, that of a softmax its output. So each function
below names what one part of the model keeps, and why; the sum is most of what training needs beyond the weights.
The tests hold it against the tensors that PyTorch saves. torch.compile fuses and recomputes, and keeps less.

Shapes: N = B*T tokens of a micro-batch, T positions, D model, H heads, G key/value heads, F feed-forward, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pellucid.cost.counts import Shape

FLOAT32 = 4  # bytes

Bytes = dict[str, int]  # what is kept, and how much


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """How one micro-batch passes through a decoder: the choices that decide what is kept."""

    shape: Shape
    batch_size: int
    number_bytes: int  # of an activation: 4 in float32, 2 under autocast
    norm: Literal["layer_norm", "rms_norm"]
    activation: Literal["relu", "gelu", "relu_squared", "swiglu"]
    attention: Literal["explicit", "fused"]
    rotates: bool  # RoPE
    soft_cap: bool
    dropout: bool
    on_cpu: bool
    recomputes_blocks: bool  # gradient checkpointing

    @property
    def n_tokens(self) -> int:
        return self.batch_size * self.shape.context_length

    @property
    def short(self) -> bool:
        """Whether autocast makes shorter copies of the float32 weights."""
        return self.number_bytes < FLOAT32

    @property
    def mask_bytes(self) -> int:
        """Of one number of a dropout mask: a CPU keeps 0 or 1 / (1 - p), as wide as an activation, a GPU a byte."""
        return self.number_bytes if self.on_cpu else 1


def peak_bytes(batch: MicroBatch) -> int:
    """The most that a micro-batch holds at once, besides weights and their gradients.

    That is at one of two moments. When the backward pass begins, nothing has been let go, and the loss's gradient is
    scaled. In the last block only the logits are left of the loss, and the block's own gradients are on their way.
    Gradient checkpointing (equation 17) keeps of a block its input alone, and computes one block again at a time.
    """
    n, shape, short = batch.n_tokens, batch.shape, batch.number_bytes
    logits = n * shape.vocab_size * short
    on_the_way = n * (shape.d_model + (1 + shape.gated_feed_forward) * shape.d_ff) * short
    ends, block = sum(ends_bytes(batch).values()), sum(block_bytes(batch).values())
    at_start, in_last_block = ends + logits, logits + on_the_way
    if batch.recomputes_blocks:
        return shape.n_layers * n * shape.d_model * short + max(at_start, in_last_block + block)
    return shape.n_layers * block + max(at_start, in_last_block)


def kept_bytes(batch: MicroBatch) -> int:
    """All that waits for the backward pass when no block is computed again."""
    return batch.shape.n_layers * sum(block_bytes(batch).values()) + sum(ends_bytes(batch).values())


def block_bytes(batch: MicroBatch) -> Bytes:
    """One block: two norms (equation 10), attention and feed-forward."""
    norm = norm_bytes(batch, batch.shape.d_model, "")
    return {**{name: 2 * size for name, size in norm.items()}, **attention_bytes(batch), **feed_forward_bytes(batch)}


def norm_bytes(batch: MicroBatch, numbers_per_token: int, whose: str) -> Bytes:
    """LayerNorm keeps its input; RMSNorm, written out in float32, a value per operation that needs one."""
    numbers = batch.n_tokens * numbers_per_token
    vectors = numbers // (batch.shape.head_width if whose else batch.shape.d_model)
    if batch.norm == "layer_norm":
        return {
            f"{whose}norm's input": numbers * batch.number_bytes,
            f"{whose}norm's mean and deviation": 2 * vectors * FLOAT32,
        }
    return {
        f"{whose}norm's input": numbers * FLOAT32,
        f"{whose}norm's input times gain": numbers * FLOAT32,
        f"{whose}norm's root mean square": vectors * FLOAT32,
    }


def attention_bytes(batch: MicroBatch) -> Bytes:
    """Equations 7 to 9: the factors of four products, and what softmax, norms and dropout need."""
    shape, n, short = batch.shape, batch.n_tokens, batch.number_bytes
    d_model, d_qkv = shape.d_model, shape.d_model + 2 * shape.d_kv
    kept = {
        "attention's input": n * d_model * short,  # for the gradient of W_Q, W_K, W_V
        "W_Q, W_K, W_V as one": d_model * d_qkv * short,  # for the gradient of that input
        "heads side by side": n * d_model * short,  # for the gradient of W_O
    }
    kept |= inner_attention_bytes(batch)
    if shape.qk_norm:
        kept |= norm_bytes(batch, d_model, "query ") | norm_bytes(batch, shape.d_kv, "key ")
    if batch.short:
        kept["W_O, shorter"] = d_model * d_model * short
    if batch.rotates and batch.short:  # the cosines of a head's width and the sines of half of it, rounded
        kept["RoPE's tables, rounded"] = 2 * shape.context_length * (shape.head_width * 3 // 2) * short
    if batch.dropout:
        kept["attention's dropout mask"] = n * d_model * batch.mask_bytes
    return kept


def inner_attention_bytes(batch: MicroBatch) -> Bytes:
    """softmax(q k^T / sqrt(K)) v, per head. The fused kernel computes the T x T weights again in the backward pass.

    With dropout PyTorch has no such kernel on a CPU, and computes the equation in float32 instead.
    """
    shape, n = batch.shape, batch.n_tokens
    step_by_step = batch.attention == "explicit" or (batch.dropout and batch.on_cpu)
    short = FLOAT32 if step_by_step and batch.attention == "fused" else batch.number_bytes
    pairs = n * shape.context_length * shape.n_heads
    # Keys and values once for each query head; a single one for all is seen by the fused kernel without a copy.
    d_kv = shape.d_kv if shape.n_kv_heads == 1 and not step_by_step else shape.d_model
    kept = {"queries, keys, values": n * (shape.d_model + 2 * d_kv) * short}
    if not step_by_step:
        kept["heads, and their softmax's denominator"] = n * (shape.d_model * short + shape.n_heads * FLOAT32)
        return kept
    kept["softmax's weights"] = pairs * short
    if batch.dropout:
        kept["weights' dropout mask"] = pairs * (short if batch.on_cpu else 1)
        kept["weights after dropout"] = pairs * short
    return kept


def feed_forward_bytes(batch: MicroBatch) -> Bytes:
    """Equation 11: the factors of two or three products, and what the activation's gradient needs."""
    shape, n, short = batch.shape, batch.n_tokens, batch.number_bytes
    hidden = {
        "relu": 0,  # its output tells where it was zero, and is kept already
        "gelu": 1,  # its input
        "relu_squared": 1,  # its root
        "swiglu": 3,  # the gate before and after silu, and what it gates
    }
    kept = {
        "feed-forward's input": n * shape.d_model * short,
        "hidden layer": n * shape.d_ff * short,  # for the gradient of W_2
        "activation's input": hidden[batch.activation] * n * shape.d_ff * short,
    }
    if batch.short:
        kept["W_1, W_2, shorter"] = sum(rows * columns for rows, columns in shape.feed_forward_matrices) * short
    if batch.dropout:
        kept["feed-forward's dropout mask"] = n * shape.d_model * batch.mask_bytes
    return kept


def ends_bytes(batch: MicroBatch) -> Bytes:
    """Before and after the blocks: embedding, final norm, unembedding and loss (equations 2 and 3)."""
    shape, n, short = batch.shape, batch.n_tokens, batch.number_bytes
    logits = n * shape.vocab_size * short
    kept = {
        "tokens": 8 * n,
        **(norm_bytes(batch, shape.d_model, "") if shape.final_norm else {}),
        "unembedding's input": n * shape.d_model * short,
        "logits": logits,  # the training loop holds them
        "loss's gradient": logits,  # found along with the loss, see SummedCrossEntropy
    }
    if batch.soft_cap:
        kept["soft cap's tanh"] = logits
    if batch.short:
        kept["unembedding, shorter"] = shape.vocab_size * shape.d_model * short
    if batch.dropout:
        kept["embedding's dropout mask"] = n * shape.d_model * batch.mask_bytes
    return kept

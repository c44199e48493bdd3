"""Builds a model from the `model` section of a config: one function and one `match` per axis of its design."""

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import nn
from typing_extensions import assert_never

from pellucid.config import model as kinds
from pellucid.config.model import BiasPlace, DecoderConfig, MLPConfig, ModelConfig, RecurrentConfig
from pellucid.model.attention import MultiHeadAttention, Rotate
from pellucid.model.block import Block
from pellucid.model.decoder import Decoder
from pellucid.model.embeddings import Embeddings, SeparateEmbeddings, SoftCap, TiedEmbeddings
from pellucid.model.feed_forward import Activation, FeedForward, SwiGLU, relu_squared
from pellucid.model.initialization import initialize
from pellucid.model.language_model import LanguageModel
from pellucid.model.norms import LayerNorm, RMSNorm
from pellucid.model.positions import Learned, NoPositions, Positions, Rotary, Sinusoidal
from pellucid.model.residual import PostNorm, PreNorm, Residual


def build_model(config: ModelConfig, vocab_size: int, *, learns_scores: bool = False) -> LanguageModel:
    """A model with random initial weights (from torch's global generator), on the default device.

    learns_scores: a decoder that can also give each token a number, such as a reward.
    """
    match config:
        case DecoderConfig():
            return build_decoder(config, vocab_size, scoring_decoder() if learns_scores else Decoder)
        case kinds.BigramConfig():
            from pellucid.model.bigram import Bigram  # loaded by the few runs that need it

            return Bigram(vocab_size, config.context_length)
        case MLPConfig():
            from pellucid.model.build_earlier import build_mlp

            return build_mlp(config, vocab_size)
        case RecurrentConfig():
            from pellucid.model.build_earlier import build_recurrent

            return build_recurrent(config, vocab_size)
        case _:
            assert_never(config)


def scoring_decoder() -> type[Decoder]:
    from pellucid.model.scoring_decoder import ScoringDecoder

    return ScoringDecoder


def build_decoder(config: DecoderConfig, vocab_size: int, kind: type[Decoder]) -> Decoder:
    positions = build_positions(config)
    model = kind(
        vocab_size=vocab_size,
        context_length=config.context_length,
        embeddings=build_embeddings(config, vocab_size),
        positions=positions,
        dropout=config.dropout,
        blocks=[build_block(config, positions, layer) for layer in range(config.n_layers)],
        # After post-norm blocks there is nothing left to normalise.
        final_norm=nn.Identity() if config.norm_placement == "post" else build_norm(config),
        soft_cap=nn.Identity() if config.logit_soft_cap is None else SoftCap(config.logit_soft_cap),
    )
    initialize(
        model,
        embedding_std=config.embedding_std,
        zero_init_projections=config.zero_init_projections,
        copying_init=config.copying_init,
    )
    return model


def build_embeddings(config: DecoderConfig | MLPConfig | RecurrentConfig, vocab_size: int) -> Embeddings:
    return (TiedEmbeddings if config.tied_embeddings else SeparateEmbeddings)(vocab_size, config.d_model)


def build_positions(config: DecoderConfig) -> Positions:
    match config.position:
        case kinds.SinusoidalConfig():
            return Sinusoidal(config.context_length, config.d_model)
        case kinds.RotaryConfig(stretch=None, base_in_windows=None) as rope:
            K = head_width(config)
            return Rotary(config.context_length, K, rope.base, rope.rotated_width(K))
        case kinds.RotaryConfig() as rope:
            from pellucid.model.build_clocks import build_clocks

            return build_clocks(rope, config.context_length, head_width(config))
        case kinds.LearnedConfig():
            return Learned(config.context_length, config.d_model)
        case kinds.NoPositionConfig():
            return NoPositions()
        case _:
            assert_never(config.position)


def head_width(config: DecoderConfig) -> int:
    return config.head_width or config.d_model // config.n_heads


def rotate_in(config: DecoderConfig, positions: Positions, layer: int) -> Rotate:
    """The layer's function to rotate queries and keys: the identity in those that `position` names."""
    unrotated = config.position.unrotated(config.n_layers) if isinstance(config.position, kinds.RotaryConfig) else ()
    own = positions if config.window_in(layer) is None else getattr(positions, "in_windows", positions)
    return NoPositions().rotate if layer in unrotated else own.rotate


def build_block(config: DecoderConfig, positions: Positions, layer: int) -> Block:
    parts = [build_residual(config, f) for f in (build_attention(config, positions, layer), build_feed_forward(config))]
    if config.norm_placement == "parallel":
        from pellucid.model.parallel import ParallelBlock

        return ParallelBlock(*parts)  # type: ignore[arg-type]
    return Block(*parts)


def build_residual(config: DecoderConfig, sublayer: nn.Module) -> Residual:
    match config.norm_placement:
        case "pre" | "parallel":
            return PreNorm(build_norm(config), sublayer)
        case "post":
            return PostNorm(build_norm(config), sublayer)
        case "output":
            from pellucid.model.output_norm import OutputNorm

            return OutputNorm(build_norm(config), sublayer)
        case "both":
            from pellucid.model.output_norm import BothNorms

            return BothNorms(build_norm(config), sublayer, build_norm(config))
        case _:
            assert_never(config.norm_placement)


def build_norm(config: DecoderConfig, width: int | None = None, place: BiasPlace = "norms") -> nn.Module:
    match config.norm:
        case "layer_norm":
            return LayerNorm(width or config.d_model, bias=config.has_bias(place), epsilon=config.norm_epsilon)
        case "rms_norm":
            return RMSNorm(width or config.d_model, epsilon=config.norm_epsilon)
        case _:
            assert_never(config.norm)


def build_head_norm(config: DecoderConfig, n_heads: int) -> nn.Module:
    """The norm of the queries, or of the keys, of so many heads."""
    if config.qk_norm != "all_heads":
        return build_norm(config, head_width(config), "query_key_norms") if config.qk_norm else nn.Identity()
    from pellucid.model.norm_of_all_heads import NormOfAllHeads

    return NormOfAllHeads(build_norm(config, n_heads * head_width(config), "query_key_norms"))


def build_attention(config: DecoderConfig, positions: Positions, layer: int) -> MultiHeadAttention:
    parts: dict[str, Any] = {
        "d_model": config.d_model,
        "head_width": head_width(config),
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads or config.n_heads,
        "rotate": rotate_in(config, positions, layer),
        "query_norm": build_head_norm(config, config.n_heads),
        "key_norm": build_head_norm(config, config.n_kv_heads or config.n_heads),
        "bias": config.has_bias("queries_keys_values"),
        "output_bias": config.has_bias("attention_output"),
        "dropout": config.dropout,
    }
    match config.attention:
        case "explicit" | "fused" if config.attention_mask == "none":
            from pellucid.model.both_sides import BothSides

            return BothSides(is_fused=config.attention == "fused", **parts)
        case "explicit" if config.attention_soft_cap is None:
            return MultiHeadAttention(**parts)
        case "fused":
            from pellucid.model.fused_attention import fused_attention

            return MultiHeadAttention(attend=fused_attention, **parts)
        case "linear":
            from pellucid.model.linear_attention import LinearAttention

            return LinearAttention(**parts)
        case "explicit" | kinds.SlidingWindowConfig():
            from pellucid.model.sliding_window import limited_attention

            return limited_attention(config.window_in(layer), config.attention_soft_cap, **parts)
        case _:
            assert_never(config.attention)


def build_feed_forward(config: DecoderConfig) -> nn.Module:
    match config.feed_forward:
        case kinds.DenseConfig():
            return build_expert(config)
        case kinds.ExpertsConfig(n_experts=n_experts, shared_experts=n_shared, top_k=top_k):
            from pellucid.model.experts import Experts, Router

            return Experts(
                router=Router(config.d_model, n_experts),
                experts=[build_expert(config) for _ in range(n_experts)],
                shared=[build_expert(config) for _ in range(n_shared)],
                top_k=top_k,
            )
        case _:
            assert_never(config.feed_forward)


def build_expert(config: DecoderConfig) -> nn.Module:
    """One feed-forward layer: the only one of a dense block, or one expert of several."""
    d_ff, bias = config.d_ff or 4 * config.d_model, config.has_bias("feed_forward")
    activation: Activation
    match config.activation:
        case "relu":
            activation = F.relu
        case "gelu":
            activation = F.gelu
        case "gelu_tanh":
            activation = partial(F.gelu, approximate="tanh")
        case "relu_squared":
            activation = relu_squared
        case "swiglu" | "geglu_tanh":
            activation = F.silu if config.activation == "swiglu" else partial(F.gelu, approximate="tanh")
            return SwiGLU(d_model=config.d_model, d_ff=d_ff, activation=activation, bias=bias, dropout=config.dropout)
        case _:
            assert_never(config.activation)
    return FeedForward(d_model=config.d_model, d_ff=d_ff, activation=activation, bias=bias, dropout=config.dropout)

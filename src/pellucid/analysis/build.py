"""From the model section of a config to its cost."""

from __future__ import annotations

from pellucid.analysis.cost import Cost, Shape, count_cost
from pellucid.config.model import ModelConfig


def cost_of(config: ModelConfig, vocab_size: int) -> Cost:
    """The counted cost of the decoder that `build_model(config, vocab_size)` would build."""
    return count_cost(
        Shape(
            vocab_size=vocab_size,
            context_length=config.context_length,
            d_model=config.d_model,
            n_layers=config.n_layers,
            n_heads=config.n_heads,
            n_kv_heads=config.n_kv_heads or config.n_heads,
            d_ff=config.d_ff or 4 * config.d_model,
            tied_embeddings=config.tied_embeddings,
            learned_positions=config.position.type == "learned",
            gated_feed_forward=config.activation == "swiglu",
            bias=config.bias,
            qk_norm=config.qk_norm,
            norm_bias=config.norm == "layer_norm" and config.bias,
            final_norm=config.norm_placement == "pre",
        )
    )

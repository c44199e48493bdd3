"""One tiny config of each kind of model: what the tests of the whole family run over. A new kind adds its line here."""

from pydantic import TypeAdapter

from pellucid.config.model import ModelConfig, with_type

CONTEXT_LENGTH = 8
DECODER = {"type": "decoder", "context_length": CONTEXT_LENGTH, "d_model": 8, "n_layers": 2, "n_heads": 2}

FAMILY = {
    "decoder": DECODER,
    "post-norm decoder": {**DECODER, "norm_placement": "post", "position": {"type": "learned"}},
    "linear decoder": {**DECODER, "attention": "linear"},
    "window decoder": {**DECODER, "attention": {"type": "sliding_window", "window": 3}},
    "decoder with experts": {**DECODER, "feed_forward": {"type": "moe", "n_experts": 3, "shared_experts": 1}},
    "bigram": {"type": "bigram", "context_length": CONTEXT_LENGTH},
    "mlp": {"type": "mlp", "context_length": CONTEXT_LENGTH, "window": 3, "d_model": 8, "d_ff": 12},
    "rnn": {"type": "rnn", "context_length": CONTEXT_LENGTH, "d_model": 8, "n_layers": 2},
    "lstm": {"type": "lstm", "context_length": CONTEXT_LENGTH, "d_model": 8, "n_layers": 2},
    "gru": {"type": "gru", "context_length": CONTEXT_LENGTH, "d_model": 8, "n_layers": 2},
}


def family_config(name: str, **changes) -> ModelConfig:
    return TypeAdapter(ModelConfig).validate_python({**with_type(FAMILY[name]), **changes})

"""The diagram of a model has all of its weights, and each once, whatever its kind."""

import json

import pytest
from pydantic import TypeAdapter

from pellucid.config.model import ModelConfig
from pellucid.model.build import build_model

DECODER = {"type": "decoder", "context_length": 8, "d_model": 8, "n_layers": 2, "n_heads": 2}
KINDS = {
    "decoder": DECODER,
    "post-norm": DECODER | {"norm_placement": "post", "tied_embeddings": False, "position": {"type": "learned"}},
    "wide heads": DECODER | {"head_width": 6, "n_kv_heads": 1, "qk_norm": True, "bias": True, "activation": "swiglu"},
    "experts": DECODER | {"feed_forward": {"type": "moe", "n_experts": 4, "shared_experts": 1}},
    "linear": DECODER | {"attention": "linear", "n_layers": 5},
    "window": DECODER | {"attention": {"type": "sliding_window", "window": 4}},
    "bigram": {"type": "bigram", "context_length": 8},
    "mlp": {"type": "mlp", "context_length": 8, "window": 3, "d_model": 4},
    "rnn": {"type": "rnn", "context_length": 8, "d_model": 4},
    "lstm": {"type": "lstm", "context_length": 8, "d_model": 4, "n_layers": 12},
    "gru": {"type": "gru", "context_length": 8, "d_model": 4, "tied_embeddings": False},
}
PARTS = """async (text) => {
    const { partsOf } = await import("/static/machine.js");
    return partsOf(JSON.parse(text));
}"""


@pytest.mark.parametrize("name", KINDS)
def test_the_parts_of_a_model_have_its_weights_each_once(modules, name):
    config = TypeAdapter(ModelConfig).validate_python(KINDS[name])
    model = build_model(config, 11)
    shapes = {name: list(weight.shape) for name, weight in model.named_parameters()}
    shown = {"config": config.model_dump(mode="json"), "weights": shapes, "vocab_size": 11}
    parts = modules.evaluate(PARTS, json.dumps(shown))

    leaves = [leaf for part in parts for leaf in part.get("parts", [part])]
    assert (leaves[0]["kind"], leaves[-1]["kind"]) == ("text", "next")
    assert all(leaf["says"] for leaf in leaves)
    n_weights = sum(weight.numel() for weight in model.parameters())
    assert sum(leaf.get("weights", 0) for leaf in leaves) == n_weights
    assert [leaf["layer"] for leaf in leaves if leaf["kind"] == "recurrent"] == list(
        range(getattr(config, "n_layers", 0) if name in ("rnn", "lstm", "gru") else 0)
    )

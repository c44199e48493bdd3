"""Models that a GGUF file cannot describe are refused. Others are read back in tests/oracles/test_gguf.py."""

import sys

import pytest

from model.model_axes import STRETCH, VOCAB_SIZE, YARN, build_away_from_zero, tiny_config
from pellucid.errors import ConfigError
from pellucid.exchange.gguf import as_gguf, write_gguf
from pellucid.tokenizer.train import train_byte_pairs

LLAMA = {"norm": "rms_norm", "activation": "swiglu", "position": {"type": "rope"}}
GPT2 = {"norm": "layer_norm", "activation": "gelu_tanh", "position": {"type": "learned"}}


def gguf_of(**choices):
    config = tiny_config(**choices)
    return as_gguf(config, build_away_from_zero(config).state_dict(), VOCAB_SIZE)


@pytest.mark.parametrize(
    ("knob", "choices"),
    [
        ("activation", {**GPT2, "activation": "gelu"}),
        ("attention", {**LLAMA, "attention": {"type": "sliding_window", "window": 4}}),
        ("attention", {**LLAMA, "attention": "linear"}),
        ("bias", {**LLAMA, "bias": ["queries_keys_values"], "qk_norm": True}),
        ("feed_forward", {**LLAMA, "feed_forward": {"type": "moe", "shared_experts": 1}}),
        ("attention", {**LLAMA, "feed_forward": {"type": "moe"}, "attention": {"type": "sliding_window", "window": 4}}),
        ("logit_soft_cap", {**LLAMA, "logit_soft_cap": 3.0}),
        ("n_kv_heads", {**GPT2, "n_kv_heads": 1}),
        ("norm", {**GPT2, "norm": "rms_norm"}),
        ("position.stretch.factor", {**LLAMA, "position": {"type": "rope", "stretch": STRETCH}, "qk_norm": True}),
        ("position.stretch.attention_factor", {**LLAMA, "position": {"type": "rope", "stretch": YARN}}),
        ("norm_placement", {**LLAMA, "norm_placement": "post"}),
        ("norm_placement", {**LLAMA, "norm_placement": "parallel"}),
        ("qk_norm", {**GPT2, "qk_norm": True}),
    ],
)
def test_what_gguf_has_no_name_for_is_refused_by_its_knob(knob, choices):
    with pytest.raises(ConfigError, match=f"^model.{knob}: "):
        gguf_of(**choices)


def test_a_window_as_wide_as_the_context_hides_nothing_and_needs_no_name():
    n = tiny_config().context_length
    assert gguf_of(**LLAMA, attention={"type": "sliding_window", "window": n}, qk_norm=True)[0] == "qwen3"
    with pytest.raises(ConfigError, match="^model.attention"):
        gguf_of(**LLAMA, attention={"type": "sliding_window", "window": n - 1}, qk_norm=True)


def test_a_qwen3_has_heads_as_wide_as_transformers_takes_for_granted():
    """Its loader does not read the width from the file, and believes in 128."""
    for choices in (LLAMA, {"activation": "relu_squared", "position": {"type": "rope", "unrotated_last_layers": 1}}):
        architecture, config, _ = gguf_of(**choices, qk_norm=True)
        assert (architecture, config.head_width) == ("qwen3", 128)


def test_without_the_package_the_command_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gguf", None)
    config = tiny_config(**LLAMA)
    tokenizer = train_byte_pairs(["a b"], vocab_size=300, special_tokens=["<|endoftext|>"])
    with pytest.raises(ConfigError, match="the package gguf is not installed; pip install 'pellucid.gguf.'"):
        write_gguf(config, build_away_from_zero(config).state_dict(), tokenizer, tmp_path / "model.gguf", name="tiny")

"""The outside witness: what leaves for transformers, and what comes from it, computes the same logits there and here."""

import importlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exchange.hugging_face_models import (
    VOCAB_SIZE,
    assert_same_logits,
    built_by_transformers,
    random_decoder,
)
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.exchange.architectures import from_hugging_face, to_hugging_face

ROPE = {"type": "rope", "base": 500.0}
PLAIN = ["relu", "gelu", "gelu_tanh", "relu_squared"]
WINDOW = {"type": "sliding_window", "window": 3}
# Of each class, the choices that it has; what it lacks stays at its default.
CHOICES = {
    "LlamaForCausalLM": {
        "norm": ["rms_norm"],
        "activation": ["swiglu"],
        "n_kv_heads": [None, 1, 2],
        "head_width": [None, 6],
        "bias": [True, False],
    },
    "MistralForCausalLM": {
        "norm": ["rms_norm"],
        "activation": ["swiglu"],
        "n_kv_heads": [None, 2],
        "head_width": [None, 6],
        "attention": [WINDOW],
    },
    "Qwen3ForCausalLM": {
        "norm": ["rms_norm"],
        "activation": ["swiglu"],
        "qk_norm": [True],
        "n_kv_heads": [None, 1, 2],
        "head_width": [None, 6],
        "attention": ["auto", WINDOW],
    },
    "GPT2LMHeadModel": {
        "position": [{"type": "learned"}, {"type": "sinusoidal"}, {"type": "none"}],
        "activation": PLAIN,
        "bias": [True, False],
    },
    "Starcoder2ForCausalLM": {
        "activation": PLAIN,
        "n_kv_heads": [None, 1, 2],
        "head_width": [None, 6],
        "bias": [True, False],
        "attention": ["auto", WINDOW],
    },
    "PersimmonForCausalLM": {
        "position": [ROPE, {**ROPE, "rotated_fraction": 0.5}],
        "activation": PLAIN,
        "qk_norm": [True],
        "bias": [True, False],
    },
    "ArceeForCausalLM": {
        "norm": ["rms_norm"],
        "activation": PLAIN,
        "n_kv_heads": [None, 1, 2],
        "head_width": [None, 6],
        "bias": [True, False],
    },
    "StableLmForCausalLM": {
        "position": [ROPE, {**ROPE, "rotated_fraction": 0.5}],
        "activation": ["swiglu"],
        "qk_norm": [True, False],
        "n_kv_heads": [None, 1, 2],
    },
}


@pytest.fixture(scope="module")
def transformers():
    """Imported when a test asks for it: several seconds, which every process that collects the tests would spend."""
    return importlib.import_module("transformers")


def configs_of(name):
    """Decoders of many shapes that a class can be."""
    choices = {"position": [ROPE], **CHOICES[name]}
    sizes = {
        "context_length": st.integers(8, 12),
        "d_model": st.sampled_from([16, 32]),
        "n_heads": st.sampled_from([2, 4]),
        "n_layers": st.integers(1, 3),
        "d_ff": st.one_of(st.none(), st.integers(3, 40)),
        "norm_epsilon": st.sampled_from([1e-6, 1e-5, 0.01]),
        "tied_embeddings": st.booleans(),
    }
    axes = {axis: st.sampled_from(values) for axis, values in choices.items()}
    return st.fixed_dictionaries({**sizes, **axes}).map(DecoderConfig.model_validate)


def function_of(config):
    """What matters to the function, with defaults written out."""
    said = config.model_dump(exclude={"dropout", "kernels", "zero_init_projections", "copying_init", "embedding_std"})
    said["n_kv_heads"] = config.n_kv_heads or config.n_heads
    said["head_width"] = config.head_width or config.d_model // config.n_heads
    said["d_ff"] = config.d_ff or 4 * config.d_model
    return said


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_exported_computes_the_same_in_transformers_and_comes_back_as_it_was(transformers, name, soak):
    @settings(max_examples=200 if soak else 12)
    @given(configs_of(name))
    def holds(config):
        ours = random_decoder(config)
        hf_config, hf_tensors = to_hugging_face(config, model_tensors(ours), VOCAB_SIZE)
        assert hf_config["architectures"] == [name]
        assert_same_logits(ours, built_by_transformers(transformers, hf_config, hf_tensors))

        again, tensors, vocab_size = from_hugging_face(hf_config, hf_tensors, "DIR")
        assert vocab_size == VOCAB_SIZE
        assert function_of(again) == function_of(config)
        torch.testing.assert_close(tensors, model_tensors(ours), rtol=0, atol=0)

    holds()

"""The outside witness: with the same weights, the logits are those of Hugging Face transformers."""

import importlib

import pytest
import torch

from model.model_axes import tiny_config
from pellucid.model.build import build_model

VOCAB_SIZE = 50
SIZES = {"context_length": 16, "d_model": 32, "n_layers": 3, "n_heads": 4}


def randomised(model):
    """Random weights, gains and biases, large enough for logits of several units."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture(scope="module")
def transformers():
    """Imported when a test asks for it: several seconds, which every process that collects the tests would spend."""
    return importlib.import_module("transformers")


def assert_same_logits(ours, theirs):
    tokens_BT = torch.randint(VOCAB_SIZE, (3, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits_BTV, expected_BTV = ours(tokens_BT), theirs(tokens_BT).logits
    assert expected_BTV.std() > 1
    torch.testing.assert_close(logits_BTV, expected_BTV, rtol=0, atol=1e-5)


def gpt2_weights(state, n_layers):
    """Hugging Face stores GPT-2's matrices transposed, and W_Q, W_K and W_V in one."""
    weights = {
        "embeddings.embedding_VD": state["transformer.wte.weight"],
        "positions.positions_TD": state["transformer.wpe.weight"],
    }
    names = {"transformer.ln_f": "final_norm"}
    for layer in range(n_layers):
        theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
        names[f"{theirs}.ln_1"] = f"{ours}.attention.norm"
        names[f"{theirs}.ln_2"] = f"{ours}.feed_forward.norm"
        names[f"{theirs}.attn.c_proj"] = f"{ours}.attention.sublayer.W_O"
        names[f"{theirs}.mlp.c_fc"] = f"{ours}.feed_forward.sublayer.W_1"
        names[f"{theirs}.mlp.c_proj"] = f"{ours}.feed_forward.sublayer.W_2"
        for kind in ("weight", "bias"):
            thirds = state[f"{theirs}.attn.c_attn.{kind}"].chunk(3, dim=-1)
            for subscript, third in zip("QKV", thirds, strict=True):
                weights[f"{ours}.attention.sublayer.W_{subscript}.{kind}"] = third.mT if third.ndim == 2 else third
    for theirs, ours in names.items():
        weight = state[f"{theirs}.weight"]
        weights[f"{ours}.weight"] = weight.mT if weight.ndim == 2 else weight
        weights[f"{ours}.bias"] = state[f"{theirs}.bias"]
    return weights


def test_logits_equal_gpt2(transformers):
    theirs = randomised(
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=VOCAB_SIZE,
                n_positions=16,
                n_embd=32,
                n_layer=3,
                n_head=4,
                activation_function="gelu",
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    )
    config = tiny_config(
        **SIZES,
        d_ff=None,
        position={"type": "learned"},
        norm="layer_norm",
        activation="gelu",
        bias=True,
        tied_embeddings=True,
    )
    ours = build_model(config, VOCAB_SIZE)
    ours.load_state_dict(gpt2_weights(theirs.state_dict(), n_layers=3))
    assert_same_logits(ours, theirs)


LLAMA_NAMES = {
    "input_layernorm": "attention.norm",
    "post_attention_layernorm": "feed_forward.norm",
    "self_attn.q_proj": "attention.sublayer.W_Q",
    "self_attn.k_proj": "attention.sublayer.W_K",
    "self_attn.v_proj": "attention.sublayer.W_V",
    "self_attn.o_proj": "attention.sublayer.W_O",
    "mlp.gate_proj": "feed_forward.sublayer.W_gate",
    "mlp.up_proj": "feed_forward.sublayer.W_1",
    "mlp.down_proj": "feed_forward.sublayer.W_2",
}


def llama_weights(state, n_layers):
    weights = {
        "embeddings.embedding_VD": state["model.embed_tokens.weight"],
        "embeddings.unembedding_VD": state["lm_head.weight"],
        "final_norm.weight": state["model.norm.weight"],
    }
    for layer in range(n_layers):
        for theirs, ours in LLAMA_NAMES.items():
            weights[f"blocks.{layer}.{ours}.weight"] = state[f"model.layers.{layer}.{theirs}.weight"]
    return weights


def test_logits_equal_llama(transformers):
    theirs = randomised(
        transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=16,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                rms_norm_eps=1e-5,
                tie_word_embeddings=False,
            )
        )
    )
    config = tiny_config(
        **SIZES,
        n_kv_heads=2,
        d_ff=48,
        position={"type": "rope", "base": 10_000.0},
        norm="rms_norm",
        activation="swiglu",
        bias=False,
        tied_embeddings=False,
    )
    ours = build_model(config, VOCAB_SIZE)
    ours.load_state_dict(llama_weights(theirs.state_dict(), n_layers=3))
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize("window", [1, 4, 16])
def test_logits_equal_mistral_which_sees_a_window(transformers, window):
    """But for the window it is a Llama."""
    theirs = randomised(
        transformers.MistralForCausalLM(
            transformers.MistralConfig(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=16,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                rms_norm_eps=1e-5,
                sliding_window=window,
                tie_word_embeddings=False,
            )
        )
    )
    config = tiny_config(
        **SIZES,
        n_kv_heads=2,
        d_ff=48,
        attention={"type": "sliding_window", "window": window},
        position={"type": "rope", "base": 10_000.0},
        norm="rms_norm",
        activation="swiglu",
        bias=False,
        tied_embeddings=False,
    )
    ours = build_model(config, VOCAB_SIZE)
    ours.load_state_dict(llama_weights(theirs.state_dict(), n_layers=3))
    assert_same_logits(ours, theirs)


def test_logits_equal_smollm3_whose_last_layers_do_not_rotate(transformers):
    """But for these layers it is a Llama."""
    theirs = randomised(
        transformers.SmolLM3ForCausalLM(
            transformers.SmolLM3Config(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=16,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
                no_rope_layers=[1, 0, 0],  # 1 where a layer rotates
                tie_word_embeddings=False,
                pad_token_id=None,
            )
        )
    )
    config = tiny_config(
        **SIZES,
        n_kv_heads=2,
        d_ff=48,
        position={"type": "rope", "unrotated_last_layers": 2},
        norm="rms_norm",
        activation="swiglu",
        bias=False,
        tied_embeddings=False,
    )
    ours = build_model(config, VOCAB_SIZE)
    ours.load_state_dict(llama_weights(theirs.state_dict(), n_layers=3))
    assert_same_logits(ours, theirs)


PERSIMMON_NAMES = {
    "input_layernorm": "attention.norm",
    "post_attention_layernorm": "feed_forward.norm",
    "self_attn.q_layernorm": "attention.sublayer.query_norm",
    "self_attn.k_layernorm": "attention.sublayer.key_norm",
    "self_attn.dense": "attention.sublayer.W_O",
    "mlp.dense_h_to_4h": "feed_forward.sublayer.W_1",
    "mlp.dense_4h_to_h": "feed_forward.sublayer.W_2",
}


def persimmon_weights(state, n_layers, n_heads):
    """Persimmon stores W_Q, W_K and W_V in one, head after head."""
    weights = {"embeddings.embedding_VD": state["model.embed_tokens.weight"]}
    for kind in ("weight", "bias"):
        weights[f"final_norm.{kind}"] = state[f"model.final_layernorm.{kind}"]
        for layer in range(n_layers):
            for theirs, ours in PERSIMMON_NAMES.items():
                weights[f"blocks.{layer}.{ours}.{kind}"] = state[f"model.layers.{layer}.{theirs}.{kind}"]
            together = state[f"model.layers.{layer}.self_attn.query_key_value.{kind}"]
            thirds = together.unflatten(0, (n_heads, 3, -1)).unbind(1)
            for subscript, third in zip("QKV", thirds, strict=True):
                weights[f"blocks.{layer}.attention.sublayer.W_{subscript}.{kind}"] = third.flatten(0, 1)
    return weights


def test_logits_equal_persimmon_which_rotates_half_of_each_head(transformers):
    """And it normalises queries and keys and squares its ReLU: the shape of the demo, with biases."""
    theirs = randomised(
        transformers.PersimmonForCausalLM(
            transformers.PersimmonConfig(
                vocab_size=VOCAB_SIZE,
                max_position_embeddings=16,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=3,
                num_attention_heads=4,
                rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
                tie_word_embeddings=True,
            )
        )
    )
    config = tiny_config(
        **SIZES,
        d_ff=48,
        position={"type": "rope", "rotated_fraction": 0.5},
        norm="layer_norm",
        activation="relu_squared",
        qk_norm=True,
        bias=True,
        tied_embeddings=True,
    )
    ours = build_model(config, VOCAB_SIZE)
    ours.load_state_dict(persimmon_weights(theirs.state_dict(), n_layers=3, n_heads=4))
    assert_same_logits(ours, theirs)

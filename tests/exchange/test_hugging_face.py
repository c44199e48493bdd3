"""The outside witness: with the same weights, logits and beams are those of Hugging Face transformers."""

import importlib

import pytest
import torch

from exchange.hugging_face_models import assert_same_logits, imported, randomised
from model.model_axes import tiny_config
from pellucid.generation.beam_search import beam_search
from pellucid.model.build import build_feed_forward, build_model
from pellucid.objectives.next_token import load_balance
from rounding import assert_equal_to_rounding

VOCAB_SIZE = 50
SIZES = {"context_length": 16, "d_model": 32, "n_layers": 3, "n_heads": 4}

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
    assert_same_logits(ours, theirs, context_length=16)


def test_experts_equal_mixtrals_gradients_included(transformers):
    """Its block stacks the matrices of all experts, and W_gate upon W_1."""
    modeling = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_local_experts": 6, "num_experts_per_tok": 2}
    theirs = randomised(modeling.MixtralSparseMoeBlock(transformers.MixtralConfig(**sizes)))
    chooses = {"type": "moe", "n_experts": 6, "top_k": 2}
    ours = build_feed_forward(tiny_config(**SIZES, d_ff=48, activation="swiglu", feed_forward=chooses))

    def as_ours(router, gate_and_up, down):
        found = {"router.weight": router}
        for i in range(6):
            found[f"experts.{i}.W_gate.weight"], found[f"experts.{i}.W_1.weight"] = gate_and_up[i].chunk(2)
            found[f"experts.{i}.W_2.weight"] = down[i]
        return found

    stacks = (theirs.gate.weight, theirs.experts.gate_up_proj, theirs.experts.down_proj)
    with torch.no_grad():
        for stack in stacks:  # their block leaves memory as it was
            stack.copy_(0.3 * torch.randn_like(stack))
    ours.load_state_dict(as_ours(*stacks))
    x_BTD = torch.randn(3, 16, 32, generator=torch.Generator().manual_seed(0))
    y_BTD, expected_BTD = ours(x_BTD), theirs(x_BTD)
    assert expected_BTD.std() > 1
    assert_equal_to_rounding(y_BTD, expected_BTD)
    for answers in (y_BTD, expected_BTD):
        answers.sin().sum().backward()
    expected = as_ours(*(stack.grad for stack in stacks))
    for name, parameter in ours.named_parameters():
        assert_equal_to_rounding(parameter.grad, expected[name])


def test_the_load_balance_of_a_row_equals_mixtrals(transformers):
    """Equation 41; its mask leaves out padding, as ours leaves out what is no target."""
    modeling = importlib.import_module("transformers.models.mixtral.modeling_mixtral")
    generator = torch.Generator().manual_seed(0)
    scores_BTE = torch.randn(3, 16, 6, generator=generator)
    is_target_BT = torch.rand(3, 16, generator=generator) < 0.7
    ours, _ = load_balance(scores_BTE.softmax(dim=-1), is_target_BT, top_k=2)
    rows = [
        modeling.load_balancing_loss_func((scores_TE,), 6, 2, attention_mask=is_target_T[None]) * is_target_T.sum()
        for scores_TE, is_target_T in zip(scores_BTE, is_target_BT, strict=True)
    ]
    torch.testing.assert_close(ours, sum(rows))


END = 0


@pytest.fixture(scope="module")
def gpt2(transformers):
    """A model of transformers with random weights and ours with the same. In a small vocabulary texts often end."""
    shape = {"n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4, "activation_function": "gelu"}
    theirs = randomised(
        transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=8, bos_token_id=END, eos_token_id=END, **shape))
    )
    ours, _ = imported({"model_type": "gpt2", "vocab_size": 8, **shape}, theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 1.5])
@pytest.mark.parametrize("n_beams", [2, 7])
def test_texts_and_scores_of_beams_are_those_of_transformers(gpt2, n_beams, length_penalty):
    theirs, ours = gpt2
    n_ended, ends = 0, lambda token_ids: token_ids[-1] == END
    for prompt_ids in ([1], [2, 5], [3, 3, 3], [7, 1, 6, 2], [4, 6]):
        prompt_BT = torch.tensor([prompt_ids])
        expected = theirs.generate(
            prompt_BT,
            attention_mask=torch.ones_like(prompt_BT),
            pad_token_id=END,
            num_beams=n_beams,
            num_return_sequences=n_beams,
            max_new_tokens=9,
            length_penalty=length_penalty,
            early_stopping="never",
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        written = [row[len(prompt_ids) :] for row in expected.sequences.tolist()]
        written = [row[: row.index(END) + 1] if END in row else row for row in written]
        best = beam_search(
            ours, prompt_ids, n_beams=n_beams, max_new_tokens=9, length_penalty=length_penalty, has_ended=ends
        )
        assert [each.token_ids for each in best] == written
        assert [each.score for each in best] == pytest.approx(expected.sequences_scores.tolist(), rel=1e-5), (
            "of a sum of ln p, none of them near 0, in float32: 80 roundings"
        )
        n_ended += sum(row[-1] == END for row in written)
    assert n_ended > 0

"""The outside witness: what leaves for transformers, or comes from it, computes the same logits there and here."""

import copy
import json
import random
from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from scripts.results import ROOT

from exchange.hugging_face_models import (
    VOCAB_SIZE,
    assert_names_a_turned_knob,
    assert_same_logits,
    built_by_transformers,
    imported,
    random_decoder,
    randomised,
)
from model.model_axes import MIXED, all_combinations, covering_combinations, tiny_config
from pellucid.checkpoint.training_state import model_tensors
from pellucid.errors import CheckpointError, ConfigError
from pellucid.exchange.architectures import ARCHITECTURES, class_for, from_hugging_face, to_hugging_face
from pellucid.exchange.export import _with_class
from pellucid.exchange.knobs import knobs_of
from pellucid.exchange.relatives import RELATIVES
from pellucid.model.build import build_model

ROPE = {"type": "rope", "base": 500.0}
LLAMA = {"norm": "rms_norm", "activation": "swiglu"}
WINDOW = {"type": "sliding_window", "window": 3}
EXPERTS = [{"type": "dense"}, {"type": "moe", "n_experts": 3}, {"type": "moe", "n_experts": 3, "shared_experts": 1}]


def test_each_combination_of_the_axes_has_a_class_or_a_knob_to_blame():
    """All of those that classes differ in, and any three of all axes."""
    axes = {"zero_init_projections": [False], "feed_forward": EXPERTS, "head_width": [None, 8]}
    fixed = {"norm_placement": ["pre"], "logit_soft_cap": [None], "tied_embeddings": [True], "bias": [False]}
    fixed |= {"qk_norm": [True, False]}
    gemma, parallel = {**LLAMA, "activation": "geglu_tanh"}, {"norm_placement": "parallel"}
    olmo = {**LLAMA, "norm_placement": "output", "qk_norm": "all_heads"}
    both = {**gemma, "norm_placement": "both", "attention_soft_cap": 2.0, "attention": MIXED}
    gemma3 = {**both, "attention_soft_cap": None, "qk_norm": True}
    rare = [tiny_config(**each, position=ROPE) for each in (gemma, olmo, parallel, both, gemma3)]
    chosen = all_combinations(**axes, **fixed, activation=["gelu", "swiglu", "relu_squared"])
    classes = set()
    for config in chain(chosen, covering_combinations(3, **axes), rare):
        try:
            classes.add(class_for(config, {}).name)
        except ConfigError as error:
            assert_names_a_turned_knob(error, config)
    assert classes == {each.name for each in ARCHITECTURES} - {"Qwen2ForCausalLM"}


@pytest.mark.parametrize(
    ("knob", "choices"),
    [
        ("attention", {"attention": WINDOW, "position": {"type": "learned"}}),
        ("attention_soft_cap", {**LLAMA, "position": ROPE, "attention_soft_cap": 2.0}),
        ("position.base_in_windows", {**LLAMA, "position": {**ROPE, "base_in_windows": 9.0}, "attention": WINDOW}),
        ("attention.full_layers", {**LLAMA, "position": ROPE, "attention": {**WINDOW, "full_layers": [0]}}),
        ("attention.window", {**LLAMA, "position": ROPE, "attention": {**WINDOW, "window": 1}}),
        ("position.unrotated_last_layers", {"position": {"type": "rope", "unrotated_last_layers": 1}}),
        ("position.rotated_fraction", {**LLAMA, "position": {"type": "rope", "rotated_fraction": 0.5}}),
        ("bias", {**LLAMA, "qk_norm": True, "bias": True}),
    ],
)
def test_what_no_class_can_be_is_refused_by_the_name_of_the_knob(knob, choices):
    """Others are turned at random in test_random_exports.py."""
    config = tiny_config(**choices)
    with pytest.raises(ConfigError) as refused:
        to_hugging_face(config, model_tensors(random_decoder(config)), VOCAB_SIZE)
    assert refused.value.where == f"model.{knob}"


def test_a_kind_of_attention_that_is_new_is_refused_as_nobody_elsewhere_computes_it():
    config = tiny_config()
    new = config.model_copy(update={"attention": "new"})
    with pytest.raises(ConfigError, match="^model.attention: no class of transformers has new here"):
        to_hugging_face(new, model_tensors(random_decoder(config)), VOCAB_SIZE)


def test_the_refusal_that_the_page_shows_is_the_one_that_is_printed():
    config = tiny_config(norm_placement="post")
    with pytest.raises(ConfigError) as refused:
        to_hugging_face(config, model_tensors(random_decoder(config)), VOCAB_SIZE)
    assert f"\n    error: {refused.value}\n" in (ROOT / "docs/ecosystem.md").read_text(encoding="utf-8")


def test_a_head_for_rewards_is_not_dropped_in_silence():
    config = tiny_config(**LLAMA, position=ROPE)
    model = randomised(build_model(config, VOCAB_SIZE, learns_scores=True))
    with pytest.raises(ConfigError, match="^model: LlamaForCausalLM has no place for scalar_head.bias; export a run"):
        to_hugging_face(config, model_tensors(model), VOCAB_SIZE)


def test_a_window_leaves_for_a_class_whose_cache_keeps_it(transformers):
    """With a window of 1 the library's own cache gives other logits than the library without one."""
    for window in (2, 3):
        config = tiny_config(**LLAMA, position=ROPE, attention={**WINDOW, "window": window})
        ours = random_decoder(config)
        theirs = built_by_transformers(transformers, *to_hugging_face(config, model_tensors(ours), VOCAB_SIZE))
        tokens_BT, cache, logits = torch.randint(VOCAB_SIZE, (1, 8)), None, []
        with torch.no_grad():
            for t in range(8):
                answer = theirs(tokens_BT[:, t : t + 1], past_key_values=cache, use_cache=True)
                cache = answer.past_key_values
                logits.append(answer.logits)
            torch.testing.assert_close(torch.cat(logits, dim=1), ours(tokens_BT), rtol=1e-5, atol=1e-5)


SIZES = {"hidden_size": 16, "intermediate_size": 21, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES["max_position_embeddings"] = 16
GPT2_SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16}
KV_HEADS = {
    "Qwen3": {"num_key_value_heads": 4},
    "Mistral": {"num_key_value_heads": 4},
    "Phi3": {"num_key_value_heads": 2},
    "StableLm": {"num_key_value_heads": 4},
}
# Beyond 6 tokens: one clock keeps its speed, one is slowed by the whole factor, and one by something between.
STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 20.0,
    "factor": 8.0,
    "original_max_position_embeddings": 6,
    "low_freq_factor": 0.2,
    "high_freq_factor": 0.9,
}
TOKENS = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}


def made_by_transformers(transformers, name, **knobs):
    """A random model of a class, and its config.json as `save_pretrained` writes it."""
    sizes = GPT2_SIZES if name == "GPT2" else SIZES
    config = getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")(
        **{**TOKENS, **sizes, **knobs}
    )
    torch.default_generator.manual_seed(0)
    model = randomised(getattr(transformers, class_name_of(name))(config))
    return model, {**json.loads(model.config.to_json_string()), "architectures": [class_name_of(name)]}


def class_name_of(name):
    return f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"


BOTH = [True, False]
ROPE_300 = {"rope_type": "default", "rope_theta": 300.0}
YARN = {"rope_type": "yarn", "rope_theta": 20.0, "factor": 4.0, "original_max_position_embeddings": 6}
YARN |= {"beta_slow": 0.2, "beta_fast": 0.9}
ROPES = [ROPE_300, STRETCHED, YARN, {"rope_type": "linear", "rope_theta": 20.0, "factor": 3.0}]
IN_PART = [{**rope, "partial_rotary_factor": share} for rope in ROPES[:3] for share in (0.25, 0.75)]
WINDOWED = {"use_sliding_window": BOTH, "sliding_window": [3], "max_window_layers": [0]}
HEADS = {"num_key_value_heads": [1, 2, 4], "tie_word_embeddings": BOTH}
# The values of the keys of config.json that a class is tried with; all other keys are as its class has them.
CLASSES = {
    "GPT2": {
        "n_inner": [None, 21],
        "activation_function": ["gelu_new", "relu", "gelu"],
        "layer_norm_epsilon": [1e-5, 0.1],
        "tie_word_embeddings": BOTH,
    },
    "Llama": {
        **HEADS,
        "head_dim": [4, 6],
        "attention_bias": BOTH,
        "mlp_bias": BOTH,
        "rms_norm_eps": [1e-6, 0.01],
        "rope_parameters": ROPES,
    },
    "Qwen3": {**HEADS, **WINDOWED, "head_dim": [4, 6], "attention_bias": BOTH, "rope_parameters": ROPES},
    "Qwen2": {**HEADS, **WINDOWED, "rope_parameters": ROPES},
    "Mistral": {**HEADS, "sliding_window": [2, 3]},
    "Mixtral": {
        **HEADS,
        "intermediate_size": [24, 21],
        "num_local_experts": [3, 4],
        "sliding_window": [None, 3],
        "experts_implementation": ["eager"],
    },
    "Starcoder2": {**HEADS, "use_bias": BOTH},
    "SmolLM3": {
        **HEADS,
        "num_hidden_layers": [5],
        "no_rope_layers": [None, [1, 0, 1, 1, 0], [1, 1, 1, 0, 0]],
        "attention_bias": BOTH,
        "rope_parameters": ROPES[:3],
    },
    "Arcee": {**HEADS, "head_dim": [4, 6], "attention_bias": BOTH, "mlp_bias": BOTH},
    "Gemma": {**HEADS, "head_dim": [4, 6], "hidden_size": [16, 20], "attention_bias": BOTH, "rope_parameters": ROPES},
    "Gemma2": {
        **HEADS,
        "head_dim": [4, 6],
        "query_pre_attn_scalar": [4, 9],
        "attention_bias": BOTH,
        "sliding_window": [3, 5],
        "layer_types": [None, ["full_attention", "sliding_attention"], ["full_attention"] * 2],
        "attn_logit_softcapping": [0.5, 2.0, None],
        "final_logit_softcapping": [5.0, None],
        "rope_parameters": ROPES,
    },
    "Gemma3": {
        **HEADS,
        "head_dim": [4, 6],
        "query_pre_attn_scalar": [4, 9],
        "attention_bias": BOTH,
        "sliding_window": [3, 5],
        "layer_types": [["full_attention", "sliding_attention"], None, ["full_attention"] * 2],
        "final_logit_softcapping": [5.0, None],
        "rope_parameters": [
            *({"full_attention": rope, "sliding_attention": {**ROPE_300, "rope_theta": 50.0}} for rope in ROPES),
            {"full_attention": ROPE_300, "sliding_attention": ROPE_300},
            None,
        ],
    },
    "Olmo2": {**HEADS, "head_dim": [4, 6], "attention_bias": BOTH, "rope_parameters": ROPES},
    "GPTNeoX": {
        "num_attention_heads": [2],
        "use_parallel_residual": BOTH,
        "attention_bias": BOTH,
        "hidden_act": ["gelu", "gelu_new", "relu"],
        "layer_norm_eps": [1e-5, 0.1],
        "rope_parameters": IN_PART,
        "tie_word_embeddings": BOTH,
    },
    "StableLm": {
        "num_attention_heads": [2],
        "num_key_value_heads": [1, 2],
        "use_qkv_bias": BOTH,
        "rope_parameters": IN_PART,
        "tie_word_embeddings": BOTH,
    },
    "Phi3": {**HEADS, "sliding_window": [None, 3]},
    "Granite": {
        **HEADS,
        "attention_bias": BOTH,
        "mlp_bias": BOTH,
        "embedding_multiplier": [3.0],
        "attention_multiplier": [0.7],
        "residual_multiplier": [0.5],
        "logits_scaling": [2.0],
    },
    "Helium": {**HEADS, "head_dim": [4], "attention_bias": BOTH},
    "Ernie4_5": {**HEADS, "head_dim": [4, 6], "use_bias": BOTH},
    "SeedOss": {**HEADS, "head_dim": [6], "attention_out_bias": BOTH},
    "Olmo": HEADS,
}
LEAVE_AS = {"Phi3": ["Llama", "Mistral"], "Olmo": ["StableLm"]}
LEAVE_AS |= {name: ["Llama"] for name in ("Granite", "Helium", "Ernie4_5", "SeedOss")}


def draws(name, soak):
    """Knobs of the class: each value at least once, and beside others by chance."""
    rng = random.Random(name)
    values = {knob: rng.sample(choices, len(choices)) for knob, choices in CLASSES[name].items()}
    for i in range(max(map(len, values.values()))):
        yield {knob: copy.deepcopy(choices[i % len(choices)]) for knob, choices in values.items()}
    for _ in range(30 if soak else 0):
        yield {knob: copy.deepcopy(rng.choice(choices)) for knob, choices in values.items()}


def test_all_classes_are_tried():
    assert {class_name_of(name) for name in CLASSES} == {each.name for each in (*ARCHITECTURES, *RELATIVES)}


@pytest.mark.parametrize("name", CLASSES)
def test_models_of_transformers_compute_the_same_here_and_when_they_go_back_even_after_training(
    transformers, name, tmp_path, soak
):
    """Every class: it comes through files, is fine-tuned, leaves, and comes again."""
    for knobs in draws(name, soak):
        theirs, _ = made_by_transformers(transformers, name, **knobs)
        theirs.save_pretrained(tmp_path)
        saved = json.loads((tmp_path / "config.json").read_text())
        ours, config = imported(saved, load_file(tmp_path / "model.safetensors"))
        assert_same_logits(ours, theirs)
        assert set(dict(ours.named_parameters())) == set(model_tensors(ours)), "all can be trained"
        fine_tune(ours)
        any_tokenizer = name != "Qwen2"
        exported = _with_class(config, model_tensors(ours), any_tokenizer)
        back = to_hugging_face(*exported, VOCAB_SIZE, any_tokenizer=any_tokenizer)
        assert back[0]["architectures"][0] in map(class_name_of, LEAVE_AS.get(name, [name]))
        assert_same_logits(ours, built_by_transformers(transformers, *back))
        config_again, tensors_again, _ = from_hugging_face(*back, "DIR")
        assert knobs_of(config_again) == knobs_of(exported[0])
        within = 1e-6 if name.startswith("Gemma") else 0  # its gains are less one there
        torch.testing.assert_close(tensors_again, dict(exported[1]), rtol=within, atol=within)


def fine_tune(model):
    """Ten steps on one text, after which it is likelier."""
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 9), generator=torch.Generator().manual_seed(1))
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.003), []
    for _ in range(10):
        loss = F.cross_entropy(model(tokens_BT[:, :-1]).flatten(0, 1), tokens_BT[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_biases_that_are_still_zeros_come_back_though_no_file_holds_them():
    config = tiny_config(norm="rms_norm", activation="swiglu", bias=True)
    tensors = model_tensors(build_model(config, VOCAB_SIZE))
    hf_config, hf_tensors = to_hugging_face(config, tensors, VOCAB_SIZE)
    assert (hf_config["attention_bias"], hf_config["mlp_bias"]) == (False, False)
    config_again, tensors_again, _ = from_hugging_face(hf_config, hf_tensors, "DIR")
    assert config_again.bias
    assert tensors_again.keys() == tensors.keys()


def test_a_hint_without_sense_is_passed_over_but_no_fault_of_ours(monkeypatch):
    config = tiny_config(norm="rms_norm", activation="swiglu", bias=True)
    hf_config, hf_tensors = to_hugging_face(config, model_tensors(build_model(config, VOCAB_SIZE)), VOCAB_SIZE)
    again, _, _ = from_hugging_face({**hf_config, "pellucid": {"bias": "everywhere"}}, hf_tensors, "DIR")
    assert not again.bias
    monkeypatch.setattr("pellucid.exchange.architectures.used_biases", lambda tensors: {}["a fault of ours"])
    with pytest.raises(KeyError, match="a fault of ours"):
        from_hugging_face(hf_config, hf_tensors, "DIR")


def test_gpt2_as_it_was_published_is_imported(transformers):
    """Without the prefix and most keys, with the masks, and in float16."""
    theirs, _ = made_by_transformers(transformers, "GPT2")
    theirs.half().float()
    tensors = {name.removeprefix("transformer."): t.half() for name, t in theirs.state_dict().items()}
    del tensors["lm_head.weight"]
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    ours, config = imported({"model_type": "gpt2", "vocab_size": VOCAB_SIZE, **GPT2_SIZES}, tensors)
    assert config.activation == "gelu_tanh"
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_same_logits(ours, theirs)


def test_llama_as_older_transformers_wrote_it_is_imported(transformers):
    theirs, hf_config = made_by_transformers(transformers, "Llama", tie_word_embeddings=False)
    older = {key: hf_config[key] for key in (*SIZES, *TOKENS, "architectures", "model_type")}
    tensors = {**theirs.state_dict(), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    for key, theta in {"rope_theta": 10_000.0, "pretraining_tp": 1, "rope_scaling": None}.items():
        older[key] = theta
    ours, config = imported(older, tensors)
    assert config.norm_epsilon == 1e-6
    assert_same_logits(ours, theirs)


def test_gemma_3_as_older_transformers_wrote_it_is_imported(transformers):
    """As on the hub: bases and stretch at the top, and each so many-th layer without a window."""
    linear, local = {"rope_type": "linear", "factor": 8.0}, {"rope_type": "default", "rope_theta": 1e4}
    ropes = {"full_attention": {**linear, "rope_theta": 1e6}, "sliding_attention": local}
    sizes = {"num_key_value_heads": 2, "head_dim": 4, "num_hidden_layers": 5, "sliding_window": 3}
    kinds = ["sliding_attention"] * 2 + ["full_attention"]
    theirs, saved = made_by_transformers(
        transformers, "Gemma3", **sizes, rope_parameters=ropes, layer_types=(kinds * 2)[:5]
    )
    older = {key: value for key, value in saved.items() if key not in ("layer_types", "rope_parameters")}
    older |= {"sliding_window_pattern": 3, "rope_scaling": linear, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
    ours, config = imported(older, theirs.state_dict())
    assert config.attention.full_layers == (2,)
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize(
    ("name", "changes", "wrong"),
    [
        ("Llama", {"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification is no class"),
        ("Llama", {"model_type": None, "architectures": None}, "a config.json without model_type is no class"),
        ("Llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu', but Pellucid has silu or swish"),
        (
            "Llama",
            {"rope_scaling": {"rope_type": "longrope", "factor": 8.0}},
            "rope_scaling is {'rope_type': 'longrope'",
        ),
        ("Llama", {"rope_scaling": {**YARN, "truncate": False}}, "truncate is False, but Pellucid has True only"),
        ("Llama", {"rope_scaling": {**YARN, "mscale_all_dim": 1.0}}, "mscale_all_dim is 1.0, but Pellucid has None"),
        ("Llama", {"rope_scaling": {**YARN, "factor": None}}, "factor is None, not a number"),
        ("Llama", {"rope_scaling": {**STRETCHED, "factor": "8"}}, "factor is '8', not a number"),
        ("Llama", {"rope_scaling": {**STRETCHED, "factor": 0.5}}, "no decoder has this shape: Input should be"),
        ("Llama", {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "rope_parameters is {'full"),
        ("Llama", {"rope_parameters": "yarn"}, "rope_parameters is 'yarn', not an object"),
        ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, but Pellucid has 1 for Llama"),
        ("Llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
        ("Llama", {"hidden_size": "16"}, "hidden_size is '16', not a positive integer"),
        ("Llama", {"num_key_value_heads": 3}, "n_heads: 4 is not a multiple of n_kv_heads 3"),
        ("Llama", {"num_hidden_layers": 2_000_000_000}, "tensors are too few for 2000000000 layers"),
        (
            "Llama",
            {"hidden_size": 2**31 - 4, "intermediate_size": 2**31 - 1},
            "no machine holds matrices of such sizes",
        ),
        ("Mistral", {"layer_types": ["full_attention"] * 2}, "layer_types is ['full_attention', 'full_attention']"),
        ("Llama", {"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5', not a number"),
        ("Llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', not true or false"),
        ("Llama", {"vocab_size": 20}, "model.embed_tokens.weight has the shape [19, 16], not [20, 16]"),
        ("Llama", {"tie_word_embeddings": True}, "lm_head.weight is not model.embed_tokens.weight"),
        ("Llama", {"attention_bias": True}, "tensor model.layers.0.self_attn.q_proj.bias is missing"),
        ("Qwen3", {"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": True}, "layer_types"),
        ("Qwen3", {"layer_types": None, "use_sliding_window": True, "max_window_layers": 1}, "max_window_layers is 1"),
        ("SmolLM3", {"no_rope_layers": [1]}, "no_rope_layers is [1], not a number for each layer"),
        ("GPTNeoX", {"use_parallel_residual": None}, "use_parallel_residual is None, not true or false"),
        ("GPTNeoX", {"hidden_act": "silu"}, "hidden_act is 'silu', but Pellucid has relu"),
        ("GPTNeoX", {"head_dim": 6}, "head_dim is 6, but Pellucid has 16 / 4 for GPTNeoXForCausalLM"),
        ("StableLm", {"use_parallel_residual": True}, "use_parallel_residual is True, but Pellucid has False only"),
        ("StableLm", {"qk_layernorm": True}, "qk_layernorm is True, but Pellucid has False only"),
        ("Phi", {}, "PhiForCausalLM is no class known here: it has biases of the logits"),
        ("SmolLM3", {"use_sliding_window": True}, "use_sliding_window is True, but Pellucid has False only"),
        ("Phi3", {"num_key_value_heads": 1}, "no Phi3ForCausalLM has these tensors and values (split_with_sizes"),
        ("Phi3", {"rope_scaling": YARN}, "rope_scaling is {'rope_type': 'yarn'"),
        ("Granite", {"logits_scaling": "2"}, "no GraniteForCausalLM has these tensors and values ("),
        ("Olmo", {"clip_qkv": 8.0}, "clip_qkv is 8.0, but Pellucid has None only"),
        (
            "Gemma2",
            {"layer_types": ["full_attention"]},
            "layer_types is ['full_attention'], not a kind of attention for",
        ),
        ("Gemma3", {"rope_parameters": {"sliding_attention": YARN}}, "rope_parameters is {'sliding_attention': "),
        ("Gemma3", {"rope_parameters": {"full_attention": 1}}, "{'full_attention': 1}, not an object for each kind of"),
        ("Gemma3", {"rope_parameters": None, "rope_local_base_freq": "1"}, "rope_local_base_freq is '1', not a number"),
        ("Gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0, but Pellucid has None only"),
        ("Gemma2", {"query_pre_attn_scalar": 0}, "no Gemma2ForCausalLM has these tensors and values ("),
        ("Gemma2", {"attn_logit_softcapping": "50"}, "attn_logit_softcapping is '50', not a number"),
        ("Gemma2", {"hidden_activation": "gelu"}, "hidden_activation is 'gelu', but Pellucid has gelu_pytorch_tanh"),
        ("Olmo3", {}, "Olmo3ForCausalLM is no class known here: it has windows in some layers"),
        ("GPT2", {"scale_attn_weights": False}, "scale_attn_weights is False, but Pellucid has True only"),
        ("GPT2", {"activation_function": "quick_gelu"}, "activation_function is 'quick_gelu', but Pellucid has relu"),
    ],
)
def test_what_we_cannot_compute_is_refused_in_one_line(transformers, name, changes, wrong):
    theirs, hf_config = made_by_transformers(transformers, name, tie_word_embeddings=False, **KV_HEADS.get(name, {}))
    hf_config = {**hf_config, "sliding_window": 3, **changes}
    with pytest.raises(CheckpointError) as refused:
        from_hugging_face(hf_config, theirs.state_dict(), "DIR")
    assert refused.value.where == "DIR"
    assert wrong in refused.value.what


@pytest.mark.parametrize(
    ("name", "change", "wrong"),
    [
        ("model.norm.weight", None, "tensor model.norm.weight is missing"),
        ("model.norm.weight", lambda t: t[:3], "model.norm.weight has the shape [3], not [16] as config.json says"),
        ("model.norm.weight", lambda t: t.fill_(torch.nan), "model.norm.weight holds NaN or infinity"),
        ("model.norm.weight", lambda t: t.to(torch.int8), "model.norm.weight holds int8"),
        ("score.weight", lambda t: torch.ones(2), "tensor score.weight is not one of this class"),
    ],
)
def test_tensors_that_are_not_those_of_the_config_are_refused_in_one_line(transformers, name, change, wrong):
    theirs, hf_config = made_by_transformers(transformers, "Llama", tie_word_embeddings=False)
    tensors = {key: tensor.clone() for key, tensor in theirs.state_dict().items()}
    tensor = tensors.pop(name, None)
    if change is not None:
        tensors[name] = change(tensor)
    with pytest.raises(CheckpointError) as refused:
        from_hugging_face(hf_config, tensors, "DIR")
    assert wrong in refused.value.what


@pytest.mark.parametrize("changed", ["bias", "position"])
def test_what_was_trained_on_in_transformers_keeps_its_new_biases_and_table(changed):
    """Zeros and waves are dropped only where they still are what export wrote."""
    config = tiny_config(position={"type": "sinusoidal"}, bias=False)
    hf_config, hf_tensors = to_hugging_face(config, model_tensors(random_decoder(config)), VOCAB_SIZE)
    hf_tensors["transformer.ln_f.bias" if changed == "bias" else "transformer.wpe.weight"] += 1
    again, _, _ = from_hugging_face(hf_config, hf_tensors, "DIR")
    assert again.bias == (changed == "bias")
    assert again.position.type == ("learned" if changed == "position" else "sinusoidal")

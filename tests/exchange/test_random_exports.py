"""Any decoder, with any tokenizer: what an export writes is enough to compute the same again, or the export is refused.

A reader here builds its model from what stands in the files alone, as other programs do.
"""

import json
import random
from functools import partial
from unicodedata import normalize

import pytest
import tokenizers
import torch

import foreign_tokenizers as foreign
from exchange.hugging_face_models import assert_names_a_turned_knob, built_by_transformers
from model.model_axes import STRETCH, YARN, build_away_from_zero, tiny_config
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig, RotaryConfig
from pellucid.errors import ConfigError
from pellucid.exchange.architectures import ARCHITECTURES, from_hugging_face, to_hugging_face
from pellucid.exchange.export import _with_class
from pellucid.exchange.gguf import _add_shape, _add_vocabulary, as_gguf
from pellucid.exchange.tokenizer_files import cuts_as, tokenizer_files
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

VOCAB_SIZE = 29
END = "<|endoftext|>"
ROPE = {"type": "rope"}
POSITIONS = [
    {**ROPE, "base": 500.0, "stretch": STRETCH},
    {**ROPE, "base": 3e5, "rotated_fraction": 0.5},
    {**ROPE, "unrotated_last_layers": 1, "base": 50.0, "stretch": YARN},
    {"type": "learned"},
    {"type": "sinusoidal"},
    {"type": "none"},
]
SIZES = {
    "context_length": [10, 13],
    "d_model": [16, 32],
    "n_layers": [1, 2],
    "n_heads": [1, 2, 4, 6],
    "n_kv_heads": [None, 1, 2],
    "head_width": [None, 4, 8, 12],
    "d_ff": [None, 9, 32],
    "norm_epsilon": [1e-6, 1e-5, 1e-2],
    "tied_embeddings": [True, False],
}
BIASES = [False, False, True, ["queries_keys_values"], ["queries_keys_values", "attention_output"], ["feed_forward"]]
WINDOWS = [
    "explicit",
    "explicit",
    "fused",
    "explicit",
    {"type": "sliding_window", "window": 2},
    {"type": "sliding_window", "window": 5},
]
DENSE, EXPERTS = {"type": "dense"}, {"type": "moe", "n_experts": 3, "top_k": 2}
ALL_AXES = {
    "position": POSITIONS,
    "norm": ["layer_norm", "rms_norm"],
    "norm_placement": ["pre", "pre", "pre", "post", "parallel", "output", "both"],
    "activation": ["relu", "gelu", "gelu_tanh", "relu_squared", "swiglu", "geglu_tanh"],
    "bias": BIASES,
    "qk_norm": [False, True, "all_heads"],
    "logit_soft_cap": [None, None, None, 9.0],
    "attention": [*WINDOWS, "linear"],
    "feed_forward": [DENSE, DENSE, EXPERTS, {**EXPERTS, "shared_experts": 1}],
}
SWIGLU = {"activation": ["swiglu"]}
GATED = {"norm": ["rms_norm"], "activation": ["swiglu", "relu_squared"], "position": POSITIONS[:3]}
BESIDE = {"norm_placement": ["pre", "parallel"], "activation": ["swiglu", "gelu", "gelu_tanh"]}
# Most random decoders are nobody else's: these are near to one that somebody has.
NEAR = [
    ALL_AXES,
    {**GATED, "bias": BIASES, "attention": WINDOWS, "activation": ["relu_squared", "swiglu"]},
    {**GATED, **SWIGLU, "bias": [["queries_keys_values"]], "attention": WINDOWS, "position": POSITIONS[:1]},
    {**GATED, "qk_norm": [True], "attention": WINDOWS, "norm": ["layer_norm", "rms_norm"]},
    {**GATED, "feed_forward": [EXPERTS], "attention": WINDOWS, "position": POSITIONS[:1], "activation": ["swiglu"]},
    {**GATED, **SWIGLU, "norm_placement": ["output"], "qk_norm": ["all_heads"], "bias": BIASES},
    {
        **GATED,
        "activation": ["geglu_tanh"],
        "norm_placement": ["both"],
        "attention": [*WINDOWS[-2:], {**WINDOWS[-1], "full_layers": [0]}],
        "attention_soft_cap": [None, None, 2.0],
        "logit_soft_cap": [None, 9.0],
        "qk_norm": [False, True],
        "position": [{**ROPE, "base": 40.0}, *({**rope, "base_in_windows": 9.0} for rope in (ROPE, POSITIONS[0]))],
    },
    {**GATED, "activation": ["geglu_tanh"], "bias": [False, ["queries_keys_values", "attention_output"]]},
    {"activation": ["gelu_tanh", "gelu_tanh", "relu"], "position": POSITIONS[3:], "bias": BIASES, "attention": WINDOWS},
    {"position": POSITIONS[:2], "bias": BIASES, "attention": WINDOWS, **BESIDE},
]


def random_decoders(n):
    """As many decoders, the same each time."""
    for seed in range(n):
        choose = random.Random(seed).choice
        drawn = {knob: choose(values) for knob, values in {**SIZES, **NEAR[seed % len(NEAR)]}.items()}
        if drawn["position"]["type"] not in ("rope", "none"):
            drawn |= {"n_heads": min(drawn["n_heads"], 4), "n_kv_heads": None, "head_width": None}
        if drawn["d_model"] % drawn["n_heads"]:
            drawn["head_width"] = drawn["head_width"] or 4
        if drawn["n_heads"] % (drawn["n_kv_heads"] or 1):
            drawn["n_kv_heads"] = None
        yield DecoderConfig.model_validate(drawn)


def of_each_class():
    return [tiny_config(**{"position": ROPE, **shape}) for shape in SHAPES.values()]


def assert_computes_the_same(config, ours, theirs):
    """To a small part of the largest: a squared ReLU is rewritten with an error, a lost knob costs far more."""
    tokens_BT = torch.randint(VOCAB_SIZE, (2, config.context_length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits_BTV, expected_BTV = ours(tokens_BT), theirs(tokens_BT).logits
    assert expected_BTV.std() > 0.1
    assert (logits_BTV - expected_BTV).abs().max() < 2e-3 * expected_BTV.abs().max(), config


def function_of(config):
    """The knobs that matter to the function, with defaults written out."""
    said = config.model_dump(exclude={"dropout", "zero_init_projections", "copying_init", "embedding_std"})
    said["n_kv_heads"] = config.n_kv_heads or config.n_heads
    said["head_width"] = config.head_width or config.d_model // config.n_heads
    said["d_ff"] = config.d_ff or 4 * config.d_model
    said["attention"] = "explicit" if config.attention == "fused" else said["attention"]
    return said


def test_what_leaves_for_transformers_computes_the_same_there_and_comes_back_as_it_was(transformers, soak):
    classes = set()
    for i, config in enumerate([*random_decoders(2000 if soak else 24), *of_each_class()]):
        any_tokenizer = i % 2 == 0
        ours = build_away_from_zero(config, VOCAB_SIZE).eval()
        try:
            written, tensors = _with_class(config, model_tensors(ours), any_tokenizer)
            exported = to_hugging_face(written, tensors, VOCAB_SIZE, any_tokenizer=any_tokenizer)
        except ConfigError as error:
            assert_names_a_turned_knob(error, config)
            continue
        classes.add(exported[0]["architectures"][0])
        assert_computes_the_same(config, ours, built_by_transformers(transformers, *exported))
        again, tensors_again, vocab_size = from_hugging_face(*exported, "DIR")
        assert vocab_size == VOCAB_SIZE
        assert function_of(again) == function_of(written)
        within = 1e-6 if exported[0]["model_type"].startswith("gemma") else 0  # its gains are less one there
        torch.testing.assert_close(tensors_again, dict(tensors), rtol=within, atol=within)
    assert classes == {each.name for each in ARCHITECTURES}


class File(dict):
    """The keys of a GGUF file."""

    def __getattr__(self, name):
        return lambda value: self.update({name.removeprefix("add_"): value})


def read_gguf(transformers, architecture, file, tensors):
    """The model that a program builds from the keys and tensors of a file, and from nothing else."""
    if "expert_count" in file:
        architecture = "mixtral"
    if architecture == "gpt2":
        sizes = {"n_positions": "context_length", "n_embd": "embedding_length", "n_layer": "block_count"}
        sizes |= {"n_inner": "feed_forward_length", "n_head": "head_count", "layer_norm_epsilon": "layer_norm_eps"}
        hf_config = {"architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new"}
    else:
        sizes = {"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length"}
        sizes |= {"max_position_embeddings": "context_length", "num_hidden_layers": "block_count"}
        sizes |= {"num_attention_heads": "head_count", "num_key_value_heads": "head_count_kv", "head_dim": "key_length"}
        sizes |= {"rms_norm_eps": "layer_norm_rms_eps"}
        hf_config = {"architectures": [f"{architecture.capitalize()}ForCausalLM"], "hidden_act": "silu"}
        hf_config |= {"rope_parameters": {"rope_type": "default", "rope_theta": file["rope_freq_base"]}}
        hf_config |= {"attention_bias": any(name.endswith("o_proj.bias") for name in tensors)}
        hf_config |= {"mlp_bias": any(name.endswith("down_proj.bias") for name in tensors)}
        if architecture == "mixtral":
            sizes |= {"num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
            hf_config |= {"sliding_window": None, "experts_implementation": "eager"}
    hf_config |= {theirs: file[key] for theirs, key in sizes.items()}
    hf_config |= {"vocab_size": VOCAB_SIZE, "tie_word_embeddings": "lm_head.weight" not in tensors}
    slowness_I = tensors.pop("rope_freqs.weight", 1.0)
    model = built_by_transformers(transformers, {"model_type": architecture, **hf_config}, tensors)
    if architecture != "gpt2":
        model.model.rotary_emb.inv_freq /= slowness_I
    return model


def test_what_a_gguf_says_is_enough_to_compute_the_same(transformers, soak):
    architectures = set()
    for config in [*random_decoders(1000 if soak else 18), *of_each_class()]:
        ours = build_away_from_zero(config, VOCAB_SIZE).eval()
        try:
            architecture, written, tensors = as_gguf(config, model_tensors(ours), VOCAB_SIZE)
        except ConfigError:  # the names of its knobs: test_gguf.py
            continue
        architectures.add((architecture, written.experts is not None))
        _add_shape(file := File(), architecture, written)
        assert_computes_the_same(config, ours, read_gguf(transformers, architecture, file, tensors))
    assert len(architectures) > (4 if soak else 2)


class Sharper(DecoderConfig):
    """With a knob of tomorrow."""

    sharpness: float = 1.0


class BentRotary(RotaryConfig):
    bend: float = 1.0


class Bent(DecoderConfig):
    """With a knob of tomorrow in one of its parts."""

    position: BentRotary


@pytest.mark.parametrize("export", [to_hugging_face, as_gguf])
@pytest.mark.parametrize(
    ("knob", "new"),
    [
        ("sharpness", partial(Sharper, sharpness=2.0)),
        ("position.bend", partial(Bent, position=BentRotary(type="rope", bend=4.0))),
    ],
)
def test_a_knob_that_is_newer_than_the_exports_is_refused_by_its_name(export, knob, new):
    config = new(context_length=8, d_model=16, n_layers=1, n_heads=2, norm="rms_norm", activation="swiglu")
    with pytest.raises(ConfigError, match=f"^model.{knob}: .* has no place for"):
        export(config, model_tensors(build_away_from_zero(config, VOCAB_SIZE)), VOCAB_SIZE)


TEXT = f"In 2026 and 1999, 12345: cafe\u0301 déjà\n\n vu\t{END}  'tis ½ ², a😀b we'll I'VE "
TEXTS = [
    TEXT,
    "years of a year",
    "",
    "   ",
    "e\u0301",
    "a" * 40,
    "the year 2026",
    "don't\n\n\n x",
    " \u00a0\u2028",
    "\x00\x07",
    "١२३",
]


def changed(tokenizer: Tokenizer, **parts) -> Tokenizer:
    """With other parts of its tokenizer.json."""
    saved = json.loads(tokenizer.to_json())
    return Tokenizer.from_json(json.dumps({**saved, **parts, "model": {**saved["model"], **parts.get("model", {})}}))


def with_whole_word(library: tokenizers.Tokenizer) -> Tokenizer:
    """With a token that text spells only as a word of its own."""
    library.add_tokens([tokenizers.AddedToken("year", single_word=True)])
    return Tokenizer(library)


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
PAIRS = train_byte_pairs([TEXT * 9], vocab_size=310, special_tokens=[END])
TOKENIZERS = {
    "bpe": PAIRS,
    "char": train_characters([*TEXTS], special_tokens=[END]),
    "chat": PAIRS.with_chat_tokens(),
    "digits": changed(
        PAIRS,
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}],
        },
    ),
    "whole words": changed(PAIRS, model={"ignore_merges": True}),
    "composed": changed(PAIRS, normalizer={"type": "NFC"}),
    "gpt2": Tokenizer(foreign.gpt2()),
    "a whole word": with_whole_word(foreign.gpt2()),
    "llama": Tokenizer(foreign.llama()),
    "llama 3": changed(Tokenizer(foreign.llama()), model={"ignore_merges": True}),
    "qwen": Tokenizer(foreign.qwen()),
    "llama 2": Tokenizer(foreign.llama2()),
    "gemma": Tokenizer(foreign.gemma()),
    "t5": Tokenizer(foreign.t5()),
}
LLAMA = {"norm": "rms_norm", "activation": "swiglu"}
SHAPES = {
    "LlamaForCausalLM": {"norm": "rms_norm", "activation": "swiglu", "bias": ["queries_keys_values"]},
    "Qwen2ForCausalLM": {"norm": "rms_norm", "activation": "swiglu", "bias": ["queries_keys_values"]},
    "MistralForCausalLM": {"norm": "rms_norm", "activation": "swiglu", "attention": WINDOWS[-1]},
    "MixtralForCausalLM": {"norm": "rms_norm", "activation": "swiglu", "feed_forward": EXPERTS},
    "Qwen3ForCausalLM": {"norm": "rms_norm", "activation": "swiglu", "qk_norm": True},
    "GPT2LMHeadModel": {"position": {"type": "learned"}, "bias": True},
    "Starcoder2ForCausalLM": {"bias": True},
    "SmolLM3ForCausalLM": {**LLAMA, "position": {**ROPE, "unrotated_layers": [0]}},
    "ArceeForCausalLM": {**LLAMA, "activation": "relu_squared"},
    "GemmaForCausalLM": {**LLAMA, "activation": "geglu_tanh"},
    "Gemma3ForCausalLM": {**LLAMA, "activation": "geglu_tanh", "norm_placement": "both", "qk_norm": True},
    "Gemma2ForCausalLM": {**LLAMA, "activation": "geglu_tanh", "norm_placement": "both", "attention_soft_cap": 2.0},
    "Olmo2ForCausalLM": {**LLAMA, "norm_placement": "output", "qk_norm": "all_heads"},
    "GPTNeoXForCausalLM": {"norm_placement": "parallel", "bias": True, "position": POSITIONS[1]},
    "StableLmForCausalLM": {"activation": "swiglu", "position": POSITIONS[1]},
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_class_is_loaded_with_the_ids_of_the_run(transformers, tmp_path, kind):
    """By AutoTokenizer, which has its own opinion of some classes."""
    tokenizer, loaded = TOKENIZERS[kind], {}
    for name, shape in SHAPES.items():
        config = DecoderConfig.model_validate({"context_length": 9, "d_model": 8, "n_layers": 1, "n_heads": 2, **shape})
        tensors = model_tensors(build_away_from_zero(config, tokenizer.vocab_size))
        any_tokenizer = cuts_as(tokenizer) != "qwen2"
        hf_config, _ = to_hugging_face(config, tensors, tokenizer.vocab_size, any_tokenizer=any_tokenizer)
        (folder := tmp_path / name).mkdir()
        (folder / "config.json").write_text(json.dumps(hf_config))
        for file, text in tokenizer_files(tokenizer, config.context_length).items():
            (folder / file).write_text(text, encoding="utf-8")
        loaded[hf_config["architectures"][0]] = transformers.AutoTokenizer.from_pretrained(folder)
    assert ("Qwen2ForCausalLM" in loaded) == (kind == "qwen")
    for name, theirs in loaded.items():
        for text in TEXTS:
            if tokenizer.has_chat_tokens:
                text = text.replace(END, "")
            if kind == "t5":  # which lacks some characters
                text = text if {*text} <= {*"the fox ran"} else "the fox  ran"
            ids = [tokenizer.end_of_text, *tokenizer.encode(text)]
            assert theirs(text)["input_ids"] == ids, (name, text)
            assert theirs.decode(ids[1:]) == tokenizer.decode(ids[1:]), (name, text)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_gguf_holds_a_vocabulary_that_gives_the_ids_of_the_run_or_is_refused(kind):
    """A reader cuts as the file says and joins by the merges in it. That of Qwen2 takes texts that are in NFC."""
    tokenizer, file = TOKENIZERS[kind], File()
    if kind not in ("bpe", "chat", "gpt2", "llama 3", "qwen"):
        with pytest.raises(ConfigError, match="^tokenizer"):
            _add_vocabulary(file, tokenizer)
        return
    _add_vocabulary(file, tokenizer)
    merges = [tuple(merge.split(" ")) for merge in file["token_merges"]]
    vocabulary = {token: id_ for id_, token in enumerate(file["token_list"])}
    takes_words = file["tokenizer_pre"] == "llama-bpe"
    reader = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=takes_words))
    plain = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    known = {"llama-bpe": foreign.cut_by(foreign.LLAMA_CUTS), "qwen2": foreign.cut_by(foreign.QWEN_CUTS)}
    reader.pre_tokenizer = known.get(file["tokenizer_pre"], plain)
    for text in TEXTS:
        assert reader.encode(normalize("NFC", text) if kind == "qwen" else text).ids == tokenizer.encode(text)

"""The supported classes of Hugging Face transformers: their features and names.

One description serves both directions, so that an exported model can be imported unchanged. The facts are from the code
of these classes (`models/<model_type>/`), versions 4.50 to 5.23.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors
from pellucid.exchange.layouts import ModuleNames
from pellucid.exchange.shifted_gains import from_shifted, to_shifted

ATTENTION, FEED_FORWARD = "blocks.{}.attention.sublayer", "blocks.{}.feed_forward.sublayer"
MOE = "model.layers.{}.block_sparse_moe"
GATED = {"swiglu": ("silu", "swish")}
PLAIN = {
    "relu": ("relu",),
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_python_tanh"),
    "relu_squared": ("relu2",),
}
LIKE_LLAMA = {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False}
SIZES = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "context_length": "max_position_embeddings",
}


Retold = Callable[[Mapping[str, Any], Tensors], dict[str, Tensor]]  # of the values and tensors of a file


@dataclass(frozen=True)
class Architecture:
    """A class of transformers; the defaults are those of Llama.

    `activations` has their names of each of our activations, of which the first is written. `defaults` are the values
    of keys that a config.json lacks; `only` are keys that have no other value in a Pellucid model, `written` keys that
    are not read.
    """

    name: str
    model_type: str
    modules: tuple[ModuleNames, ...]
    norm: str = "rms_norm"
    activations: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GATED)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=lambda: SIZES)
    epsilon: str = "rms_norm_eps"
    activation: str = "hidden_act"
    positions: tuple[str, ...] = ("rope",)
    qk_norm: bool | str = False
    groups_heads: bool = True
    sets_head_width: bool = True
    divides_width: bool = True  # d_model must be a multiple of n_heads
    placements: tuple[str, ...] = ("pre",)
    older_rotation: tuple[str, str] = ("rope_theta", "partial_rotary_factor")  # its keys before version 5
    rotations: tuple[str, ...] = ("default", "linear", "llama3", "yarn")
    rotates_a_part: bool = False
    unrotated: bool = False  # it says which layers do not rotate
    window: str | None = None  # the key that says which layers have a window
    mixes_windows: bool = False  # some layers may have none
    base_in_windows: str | None = None  # the key of RoPE's base in layers with a window, before version 5
    soft_caps: Mapping[str, str] = field(default_factory=dict)  # the keys of our knobs
    experts: bool = False
    own_tokenizer: bool = False  # transformers reads no other one for it, whatever the files beside it say
    retold: Retold | None = None  # its tensors as those of its modules
    untold: Retold | None = None  # and back
    prefix: str = "model."
    embedding: str = "model.embed_tokens.weight"
    unembedding: str = "lm_head.weight"
    dropouts: tuple[str, ...] = ("attention_dropout",)


BEFORE_F = ("input_layernorm", "post_attention_layernorm")
ON_OUTPUT = ("post_attention_layernorm", "post_feedforward_layernorm")
AROUND = ("input_layernorm", "pre_feedforward_layernorm")


def attention(
    *, qkv: bool | str = False, out: bool | str = False, norms: bool = False, placed: tuple[str, str] = BEFORE_F
) -> tuple[ModuleNames, ...]:
    """The modules that all classes but GPT-2 share. placed: their names of the norms of the two sublayers."""
    return (
        ModuleNames(("final_norm",), "model.norm", bias=norms),
        ModuleNames(("blocks.{}.attention.norm",), f"model.layers.{{}}.{placed[0]}", bias=norms),
        ModuleNames((f"{ATTENTION}.W_Q",), "model.layers.{}.self_attn.q_proj", bias=qkv),
        ModuleNames((f"{ATTENTION}.W_K",), "model.layers.{}.self_attn.k_proj", bias=qkv),
        ModuleNames((f"{ATTENTION}.W_V",), "model.layers.{}.self_attn.v_proj", bias=qkv),
        ModuleNames((f"{ATTENTION}.W_O",), "model.layers.{}.self_attn.o_proj", bias=out),
        ModuleNames(("blocks.{}.feed_forward.norm",), f"model.layers.{{}}.{placed[1]}", bias=norms),
    )


def query_key_norms(within: str = "") -> tuple[ModuleNames, ...]:
    return (
        ModuleNames((f"{ATTENTION}.query_norm{within}",), "model.layers.{}.self_attn.q_norm"),
        ModuleNames((f"{ATTENTION}.key_norm{within}",), "model.layers.{}.self_attn.k_norm"),
    )


def gated(bias: bool | str = False) -> tuple[ModuleNames, ...]:
    return (
        ModuleNames((f"{FEED_FORWARD}.W_gate",), "model.layers.{}.mlp.gate_proj", bias=bias),
        *plain("up_proj", "down_proj", bias),
    )


def plain(widen: str, narrow: str, bias: bool | str) -> tuple[ModuleNames, ...]:
    return (
        ModuleNames((f"{FEED_FORWARD}.W_1",), f"model.layers.{{}}.mlp.{widen}", bias=bias),
        ModuleNames((f"{FEED_FORWARD}.W_2",), f"model.layers.{{}}.mlp.{narrow}", bias=bias),
    )


QKV = tuple(f"{ATTENTION}.W_{letter}" for letter in "QKV")

LLAMA = Architecture(
    name="LlamaForCausalLM",
    model_type="llama",
    modules=attention(qkv="attention_bias", out="attention_bias") + gated("mlp_bias"),
    defaults={**LIKE_LLAMA, "attention_bias": False, "mlp_bias": False},
)
SMOLLM3 = replace(
    LLAMA,  # with layers that do not rotate
    name="SmolLM3ForCausalLM",
    model_type="smollm3",
    unrotated=True,
    defaults={
        **LLAMA.defaults,
        "rope_theta": 2e6,
        "num_key_value_heads": 4,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
    only={"use_sliding_window": False},
    written={"pad_token_id": None},  # or a token is assumed that a small vocabulary lacks
)
ARCEE = replace(
    LLAMA,  # with a squared ReLU
    name="ArceeForCausalLM",
    model_type="arcee",
    activations={"relu_squared": PLAIN["relu_squared"]},
    modules=attention(qkv="attention_bias", out="attention_bias") + plain("up_proj", "down_proj", "mlp_bias"),
    defaults={**LLAMA.defaults, "hidden_act": "relu2", "rms_norm_eps": 1e-5},
)
MISTRAL = Architecture(  # a Llama with a window
    name="MistralForCausalLM",
    model_type="mistral",
    modules=attention() + gated(),
    window="sliding_window",
    divides_width=False,
    defaults={**LIKE_LLAMA, "num_key_value_heads": 8, "sliding_window": 4096},
)
MIXTRAL = replace(
    MISTRAL,  # with experts
    name="MixtralForCausalLM",
    model_type="mixtral",
    modules=(
        *attention(),
        ModuleNames((f"{FEED_FORWARD}.router",), f"{MOE}.gate"),
        ModuleNames((f"{FEED_FORWARD}.experts.{{}}.W_gate",), f"{MOE}.experts.{{}}.w1"),
        ModuleNames((f"{FEED_FORWARD}.experts.{{}}.W_1",), f"{MOE}.experts.{{}}.w3"),
        ModuleNames((f"{FEED_FORWARD}.experts.{{}}.W_2",), f"{MOE}.experts.{{}}.w2"),
    ),
    experts=True,
    defaults={
        **MISTRAL.defaults,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
QWEN2 = Architecture(  # a Llama with biases for queries, keys and values alone
    name="Qwen2ForCausalLM",
    model_type="qwen2",
    modules=attention(qkv=True) + gated(),
    window="layer_types",
    divides_width=False,
    own_tokenizer=True,
    defaults={**LIKE_LLAMA, "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
)
QWEN3 = replace(
    QWEN2,  # with norms of queries and keys, and other biases
    name="Qwen3ForCausalLM",
    model_type="qwen3",
    modules=attention(qkv="attention_bias", out="attention_bias") + gated() + query_key_norms(),
    qk_norm=True,
    own_tokenizer=False,
    defaults={**QWEN2.defaults, "head_dim": 128, "attention_bias": False},
)
OLMO2 = replace(
    LLAMA,  # with norms of what a sublayer returns, and of all queries and all keys of a token
    name="Olmo2ForCausalLM",
    model_type="olmo2",
    modules=(
        *attention(qkv="attention_bias", out="attention_bias", placed=ON_OUTPUT),
        *gated(),
        *query_key_norms(".norm"),
    ),
    placements=("output",),
    qk_norm="all_heads",
    defaults={**LIKE_LLAMA, "rms_norm_eps": 1e-5, "attention_bias": False},
    written={"pad_token_id": None},
)
GEMMA = replace(
    LLAMA,  # with GELU as the gate
    name="GemmaForCausalLM",
    model_type="gemma",
    activations={"geglu_tanh": ("gelu_pytorch_tanh", "gelu")},  # it takes the second for the first
    modules=attention(qkv="attention_bias", out="attention_bias") + gated(),
    defaults={
        **LIKE_LLAMA,
        "hidden_act": "gelu_pytorch_tanh",
        "num_key_value_heads": 16,
        "head_dim": 256,
        "tie_word_embeddings": True,
        "attention_bias": False,
    },
    only={"use_bidirectional_attention": False},
    written={"pad_token_id": None},
    retold=from_shifted,
    untold=to_shifted,
)
GEMMA2 = replace(
    GEMMA,  # with norms before and after each sublayer, capped scores and logits, and windows in some layers
    name="Gemma2ForCausalLM",
    model_type="gemma2",
    activations={"geglu_tanh": ("gelu_pytorch_tanh",)},
    activation="hidden_activation",
    modules=(
        *attention(qkv="attention_bias", out="attention_bias", placed=AROUND),
        *gated(),
        ModuleNames(("blocks.{}.attention.output_norm",), "model.layers.{}.post_attention_layernorm"),
        ModuleNames(("blocks.{}.feed_forward.output_norm",), "model.layers.{}.post_feedforward_layernorm"),
    ),
    placements=("both",),
    window="layer_types",
    mixes_windows=True,
    soft_caps={"logit_soft_cap": "final_logit_softcapping", "attention_soft_cap": "attn_logit_softcapping"},
    defaults={
        **GEMMA.defaults,
        "hidden_activation": "gelu_pytorch_tanh",
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 2,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
)
GEMMA3 = replace(
    GEMMA2,  # with norms of queries and keys, no cap of scores, and another base of RoPE in windows
    name="Gemma3ForCausalLM",
    model_type="gemma3_text",
    modules=GEMMA2.modules + query_key_norms(),
    qk_norm=True,
    soft_caps={"logit_soft_cap": "final_logit_softcapping"},
    base_in_windows="rope_local_base_freq",
    defaults={
        **GEMMA2.defaults,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    },
    only={**GEMMA2.only, "attn_logit_softcapping": None},
    retold=partial(from_shifted, queries="q_norm"),
    untold=partial(to_shifted, queries="q_norm"),
)
STARCODER2 = Architecture(
    name="Starcoder2ForCausalLM",
    model_type="starcoder2",
    norm="layer_norm",
    activations=PLAIN,
    modules=attention(qkv="use_bias", out="use_bias", norms=True) + plain("c_fc", "c_proj", "use_bias"),
    epsilon="norm_epsilon",
    window="sliding_window",
    divides_width=False,
    defaults={
        "norm_epsilon": 1e-5,
        "hidden_act": "gelu_pytorch_tanh",
        "num_key_value_heads": 2,
        "use_bias": True,
        "sliding_window": None,
        "tie_word_embeddings": True,
    },
)
GPT2 = Architecture(
    name="GPT2LMHeadModel",
    model_type="gpt2",
    norm="layer_norm",
    activations=PLAIN,
    modules=(
        ModuleNames(("final_norm",), "transformer.ln_f", bias=True),
        ModuleNames(("blocks.{}.attention.norm",), "transformer.h.{}.ln_1", bias=True),
        ModuleNames(QKV, "transformer.h.{}.attn.c_attn", side_by_side=True, bias=True),
        ModuleNames((f"{ATTENTION}.W_O",), "transformer.h.{}.attn.c_proj", side_by_side=True, bias=True),
        ModuleNames(("blocks.{}.feed_forward.norm",), "transformer.h.{}.ln_2", bias=True),
        ModuleNames((f"{FEED_FORWARD}.W_1",), "transformer.h.{}.mlp.c_fc", side_by_side=True, bias=True),
        ModuleNames((f"{FEED_FORWARD}.W_2",), "transformer.h.{}.mlp.c_proj", side_by_side=True, bias=True),
    ),
    sizes={
        "d_model": "n_embd",
        "d_ff": "n_inner",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "context_length": "n_positions",
    },
    epsilon="layer_norm_epsilon",
    activation="activation_function",
    positions=("learned", "sinusoidal", "none"),
    groups_heads=False,
    sets_head_width=False,
    prefix="transformer.",
    embedding="transformer.wte.weight",
    dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    defaults={
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
        "n_inner": None,
        "tie_word_embeddings": True,
    },
    only={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
)

LAYER = "gpt_neox.layers.{}"
GPT_NEOX = Architecture(
    name="GPTNeoXForCausalLM",
    model_type="gpt_neox",
    norm="layer_norm",
    activations=PLAIN,
    modules=(
        ModuleNames(("final_norm",), "gpt_neox.final_layer_norm", bias=True),
        ModuleNames(("blocks.{}.attention.norm",), f"{LAYER}.input_layernorm", bias=True),
        ModuleNames(QKV, f"{LAYER}.attention.query_key_value", head_by_head=True, bias="attention_bias"),
        ModuleNames((f"{ATTENTION}.W_O",), f"{LAYER}.attention.dense", bias="attention_bias"),
        ModuleNames(("blocks.{}.feed_forward.norm",), f"{LAYER}.post_attention_layernorm", bias=True),
        ModuleNames((f"{FEED_FORWARD}.W_1",), f"{LAYER}.mlp.dense_h_to_4h", bias=True),
        ModuleNames((f"{FEED_FORWARD}.W_2",), f"{LAYER}.mlp.dense_4h_to_h", bias=True),
    ),
    epsilon="layer_norm_eps",
    placements=("pre", "parallel"),
    older_rotation=("rotary_emb_base", "rotary_pct"),
    rotates_a_part=True,
    groups_heads=False,
    sets_head_width=False,
    prefix="gpt_neox.",
    embedding="gpt_neox.embed_in.weight",
    unembedding="embed_out.weight",
    dropouts=("attention_dropout", "hidden_dropout"),
    defaults={
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "attention_bias": True,
        "use_parallel_residual": True,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
    },
)
STABLELM = Architecture(  # a Llama with LayerNorms that rotates a part of each head
    name="StableLmForCausalLM",
    model_type="stablelm",
    norm="layer_norm",
    modules=attention(qkv="use_qkv_bias", norms=True) + gated(),
    epsilon="layer_norm_eps",
    rotates_a_part=True,
    sets_head_width=False,
    dropouts=("attention_dropout", "hidden_dropout"),
    defaults={
        "layer_norm_eps": 1e-5,
        "hidden_act": "silu",
        "num_key_value_heads": 32,
        "use_qkv_bias": False,
        "partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
    },
    only={"qk_layernorm": False, "use_parallel_residual": False},  # whose norms are one for each head, one for both
)

# The first is used of those that match a decoder with the fewest unused biases.
ARCHITECTURES = (
    LLAMA,
    QWEN3,
    GPT2,
    STARCODER2,
    MISTRAL,
    MIXTRAL,
    QWEN2,
    SMOLLM3,
    ARCEE,
    OLMO2,
    GEMMA,
    GEMMA2,
    GEMMA3,
    GPT_NEOX,
    STABLELM,
)

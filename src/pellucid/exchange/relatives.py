"""Classes of transformers that compute what a decoder does, under other names or in another layout: read, not written.

Such a model leaves as the class of `classes.py` that computes the same. Its tensors are told anew before they are read:
parted, reordered, multiplied or completed, so that they are those of its `modules`.

Shapes: D model, H heads (queries' or keys'), K head width.
"""

from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors
from pellucid.exchange.classes import LLAMA, MISTRAL, attention, gated
from pellucid.exchange.shifted_gains import Values, module_of

MULTIPLIERS = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
NORMS_BESIDE = {
    "embed_tokens.weight": ("norm.weight",),
    "self_attn.q_proj.weight": ("input_layernorm.weight", "post_attention_layernorm.weight"),
}


def heads_of(values: Values) -> dict[str, int]:
    """The number of heads in each projection."""
    n_heads = values["num_attention_heads"]
    n_kv_heads = values.get("num_key_value_heads") or n_heads
    return {"q_proj": n_heads, "k_proj": n_kv_heads, "v_proj": n_kv_heads}


def parted(values: Values, tensors: Tensors) -> dict[str, Tensor]:
    """Phi-3 keeps W_Q, W_K and W_V in one matrix, one below the other, and W_gate and W_1 in another."""
    shares_of = {"qkv_proj": heads_of(values), "gate_up_proj": {"gate_proj": 1, "up_proj": 1}}
    retold = {}
    for name, tensor in tensors.items():
        together = module_of(name)
        shares = shares_of.get(together, {together: 1})
        rows = len(tensor) // sum(shares.values())  # of a head
        for part, matrix in zip(shares, torch.split(tensor, [rows * share for share in shares.values()]), strict=True):
            retold[name.replace(together, part)] = matrix.clone()
    return retold


def in_halves(values: Values, tensors: Tensors) -> dict[str, Tensor]:
    """Helium and Ernie rotate coordinates 2i and 2i + 1 of a head, as the paper does, not i and i + K/2."""
    retold = dict(tensors)
    for name, tensor in tensors.items():
        if (module := module_of(name)) in ("q_proj", "k_proj"):
            pairs = tensor.reshape(heads_of(values)[module], -1, 2, *tensor.shape[1:])
            retold[name] = pairs.transpose(1, 2).reshape(tensor.shape)
    return retold


def multiplied(values: Values, tensors: Tensors) -> dict[str, Tensor]:
    """Granite multiplies embeddings, scores, what sublayers return and logits by numbers: weights hold these as well.

    Scores are then not divided by sqrt(K). With tied embeddings the last norm makes up for their multiplier.
    """
    embedding, attention_scale, residual, logits = (values[key] for key in MULTIPLIERS)
    tied = embedding if values["tie_word_embeddings"] else 1
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    scales = {"embed_tokens": embedding, "lm_head": tied, "norm": 1 / (tied * logits)}
    scales |= {"q_proj": attention_scale * sqrt(width), "o_proj": residual, "down_proj": residual}
    return {name: tensor.float() * scales.get(module_of(name), 1) for name, tensor in tensors.items()}


def with_gains(values: Values, tensors: Tensors) -> dict[str, Tensor]:
    """OLMo's LayerNorm has no gain: a gain of ones."""
    retold: dict[str, Tensor] = dict(tensors)
    for name, tensor in tensors.items():
        for place, norms in NORMS_BESIDE.items():
            if name.endswith(place):
                retold |= {name.removesuffix(place) + norm: torch.ones(tensor.size(1)) for norm in norms}
    return retold


PHI3 = replace(
    MISTRAL,
    name="Phi3ForCausalLM",
    model_type="phi3",
    defaults={**MISTRAL.defaults, "rms_norm_eps": 1e-5, "num_key_value_heads": None, "sliding_window": None},
    rotations=("default",),  # its "yarn" is LongRoPE
    retold=parted,
)
GRANITE = replace(
    LLAMA,
    name="GraniteForCausalLM",
    model_type="granite",
    defaults={**LLAMA.defaults, **dict.fromkeys(MULTIPLIERS, 1.0)},
    retold=multiplied,
)
HELIUM = replace(
    LLAMA,
    name="HeliumForCausalLM",
    model_type="helium",
    modules=attention(qkv="attention_bias") + gated("mlp_bias"),
    defaults={**LLAMA.defaults, "rms_norm_eps": 1e-8, "head_dim": 128, "rope_theta": 1e5},
    retold=in_halves,
)
ERNIE = replace(
    LLAMA,
    name="Ernie4_5ForCausalLM",
    model_type="ernie4_5",
    modules=attention(qkv="use_bias", out="use_bias") + gated("use_bias"),
    defaults={
        **LLAMA.defaults,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "rope_theta": 5e5,
        "tie_word_embeddings": True,
        "use_bias": False,
    },
    retold=in_halves,
)
SEED_OSS = replace(
    LLAMA,
    name="SeedOssForCausalLM",
    model_type="seed_oss",
    modules=attention(qkv="attention_bias", out="attention_out_bias") + gated("mlp_bias"),
    defaults={
        **LLAMA.defaults,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_bias": True,
        "attention_out_bias": False,
    },
)
OLMO = replace(
    LLAMA,
    name="OlmoForCausalLM",
    model_type="olmo",
    norm="layer_norm",
    modules=attention() + gated(),
    epsilon="layer_norm_eps",
    defaults={**LLAMA.defaults, "layer_norm_eps": 1e-5},
    only={"clip_qkv": None, "attention_bias": False},
    retold=with_gains,
)
RELATIVES = (PHI3, GRANITE, HELIUM, ERNIE, SEED_OSS, OLMO)

# What other classes have that no decoder here has, by model_type.
MISSING = {
    **dict.fromkeys(("phi", "gptj", "codegen"), "biases of the logits"),
    **dict.fromkeys(("cohere", "cohere2", "falcon"), "one norm for attention and feed-forward side by side"),
    **dict.fromkeys(("bloom", "mpt"), "scores that fall with the distance (ALiBi)"),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "olmoe", "phimoe", "deepseek_v3", "gpt_oss"), "another kind of experts"),
    **dict.fromkeys(("glm", "glm4"), "a rotated half whose pairs are neighbours"),
    "nemotron": "a LayerNorm with 1 + gain",
    **dict.fromkeys(("ministral", "olmo3"), "windows in some layers"),
    "mamba": "no attention",
    "bert": "attention to later tokens",
}

"""Folders as transformers and PEFT save them: random models of a class, and random adapters beside them."""

import json
import shutil
from math import sqrt
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import foreign_tokenizers as foreign
from exchange.test_architectures import made_by_transformers

MULTIPLIERS = {"embedding_multiplier": 3.0, "attention_multiplier": 0.7, "residual_multiplier": 0.5}
CLASSES = {
    "GPT2": {},
    "Llama": {"num_key_value_heads": 2, "head_dim": 6, "attention_bias": True},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 6},
    "Starcoder2": {"num_key_value_heads": 2},
    "Olmo2": {"num_key_value_heads": 2},
    "Gemma": {"num_key_value_heads": 2, "head_dim": 6},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 6, "query_pre_attn_scalar": 9},
    "Gemma3": {"num_key_value_heads": 2, "head_dim": 6, "query_pre_attn_scalar": 9},
    "GPTNeoX": {"num_attention_heads": 2},
    "Phi3": {"num_key_value_heads": 2},
    "Granite": {**MULTIPLIERS, "logits_scaling": 2.0, "num_key_value_heads": 2},
    "Helium": {"num_key_value_heads": 2, "head_dim": 4},
    "Olmo": {"num_key_value_heads": 2},
}
N_TOKENS = 310  # as foreign.gpt2 has them


def save_model(transformers, name: str, folder: Path):
    """A random model of a class in a folder that `pellucid import` reads."""
    model, _ = made_by_transformers(transformers, name, vocab_size=N_TOKENS, **CLASSES[name])
    model.save_pretrained(folder)
    foreign.gpt2().save(str(folder / "tokenizer.json"))
    return model


def matrices(folder: Path) -> dict[str, torch.Tensor]:
    """Those of the linear layers inside blocks, by the names of their modules."""
    weights = load_file(folder / "model.safetensors")
    inside = {name: w for name, w in weights.items() if (".layers." in name or ".h." in name) and w.ndim == 2}
    return {name.removesuffix(".weight"): weight for name, weight in inside.items()}


def save_adapter(base: Path, folder: Path, **values) -> None:
    """A random adapter beside each of them, with three ranks, and another alpha beside the last."""
    generator, is_conv1d, tensors = torch.Generator().manual_seed(0), ".h." in next(iter(matrices(base))), {}
    for i, (module, weight) in enumerate(matrices(base).items()):
        (n_outputs, n_inputs), rank = (weight.T if is_conv1d else weight).shape, 1 + i % 3
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(rank, n_inputs, generator=generator)
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(n_outputs, rank, generator=generator)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    usual = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 2, "lora_alpha": 3, "bias": "none"}
    of_one = {"alpha_pattern": {module.removeprefix("model."): 5.0}, "fan_in_fan_out": is_conv1d}
    (folder / "adapter_config.json").write_text(json.dumps({**usual, **of_one, **values}))


def save_merged(base: Path, adapter: Path, folder: Path) -> None:
    """A copy of the base, with what the adapter says added to each matrix, as PEFT does."""
    shutil.copytree(base, folder)
    values = json.loads((adapter / "adapter_config.json").read_text())
    factors, weights = load_file(adapter / "adapter_model.safetensors"), load_file(base / "model.safetensors")
    for name, A in factors.items():
        if not name.endswith("lora_A.weight"):
            continue
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        alpha = values["lora_alpha"]
        for pattern, other in values.get("alpha_pattern", {}).items():
            alpha = other if module.endswith(pattern) else alpha
        scale = alpha / (sqrt(len(A)) if values.get("use_rslora") else len(A))
        delta = scale * factors[name.replace("lora_A", "lora_B")] @ A
        weights[f"{module}.weight"] += delta.T if values["fan_in_fan_out"] else delta
    save_file(weights, folder / "model.safetensors")

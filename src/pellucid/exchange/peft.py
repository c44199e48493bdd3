"""LoRA adapters as PEFT's folders, in and out: adapter_config.json and adapter_model.safetensors.

An adapter belongs to the weights beside which it was trained. So the base, a folder of transformers, must hold those of
our run. Then A stays as it is, and B goes the way of the rows of the matrix that it stands beside.

Shapes: R rank, O outputs, I inputs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import Checkpoint, Tensors, step_name
from pellucid.checkpoint.training_state import first_not_finite, model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.config.post_training import LoRAConfig
from pellucid.config.run import RunConfig, run_and_checkpoint
from pellucid.errors import CheckpointError, ConfigError, Fix, Option
from pellucid.exchange.architectures import FLOATS, Retelling, linear_names
from pellucid.exchange.folders import json_object, write_run
from pellucid.exchange.imports import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    BASE,
    TOKENIZER,
    first_checkpoint,
    folder_of,
    model_in,
    new_run,
    run_config,
    text_of,
    weights_of,
)
from pellucid.exchange.knobs import knobs_of, require_all_written
from pellucid.exchange.layouts import TensorNames
from pellucid.trained import base_in, trained_model

Factors = tuple[Tensor, Tensor]  # A (R, I) and B (O, R)

FACTOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
SAVE_AGAIN = "save the adapter again, by `save_pretrained` of peft"
MERGE_THERE = "merge it there, by `merge_and_unload` of peft, and import the saved model"
TO_HF = Option("--to hf", 'to="hf"')
MERGE_HERE = Fix("merge it with `pellucid merge`, and export that with {}", TO_HF)
ITS_BASE = MERGE_HERE.after("name the export of the run that it started from")
# Keys that are read, that the tensors show, that concern training alone, or that mean nothing without a refused one.
READ = {"peft_type", "base_model_name_or_path", "lora_alpha", "alpha_pattern", "use_rslora", "init_lora_weights"}
SHOWN = {"r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"}
OF_TRAINING = {"lora_dropout", "inference_mode", "task_type", "auto_mapping", "revision", "peft_version"}
WITHOUT_MEANING = {"fan_in_fan_out", "megatron_core", "qalora_group_size"}
PLAIN_STARTS = (None, True, False, "gaussian")  # the others change the base, too


def import_adapter(source: str, run_dir: Path, base: str) -> None:
    """Import a LoRA adapter, from a folder or the hub, as a run that starts from the run of its base (RUN or RUN@STEP).

    Raises CheckpointError for another kind of adapter, ConfigError if its base is another model; else as `import_run`.
    """
    tokenizer_path = (run_dir / TOKENIZER).as_posix()
    run_dir, name = new_run(run_dir)
    folder, where = folder_of(source), f"{source}/{ADAPTER_CONFIG}"
    values = json_object(text_of(folder / ADAPTER_CONFIG, SAVE_AGAIN), CheckpointError, where, SAVE_AGAIN)
    their_base = _require_lora(values, where)
    there, scale = _scaled(_pairs(weights_of(folder, source, ADAPTER_WEIGHTS), source), values, where)
    here = base_in(find_step_directory(*run_and_checkpoint(base)))
    if not isinstance(model := here.config.model, DecoderConfig):
        raise ConfigError("model.type", f"{model.type} has no equal in other programs", "name a run of a decoder")
    fix = Fix("name with {} the run that was imported from there, or import the merged model", BASE)
    base_folder = folder_of(their_base, f"bring it here, or write into {where} where it is")
    names, retold = _names_in(base_folder, their_base, model, here.weights, fix)
    factors = _ours(there, names, retold, here.weights, source)
    rank, targets = max(len(A_RI) for A_RI, _ in factors.values()), sorted({_layer(name) for name in factors})
    adapted = [name for each in names for name in each.ours if _layer(name) in targets]
    tensors = _padded({name: factors.get(name) or _none(here.weights[name]) for name in adapted}, rank)
    adapter = {"type": "lora", "rank": rank, "alpha": scale * rank, "targets": targets}
    config = run_config(name, model, tokenizer_path, start_from=base, adapter=adapter)
    checkpoint = first_checkpoint(tensors, config, here.checkpoint.tokenizer_json, here.sha256)
    trained_model(checkpoint, run_dir / step_name(0))  # raises if the rank is too large
    write_run(run_dir, checkpoint)


def exported_adapter(
    config: RunConfig, checkpoint: Checkpoint, step_directory: Path, base: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The adapter_config.json and the tensors of a run's adapter, beside its base in the folder `base`.

    Raises ConfigError if the run has none, or if the folder holds other weights than those that it was trained beside.
    """
    if (adapter := config.adapter) is None:
        raise ConfigError(f"run {config.name}", "it has no adapter", Fix("export it with {}", TO_HF))
    assert isinstance(config.model, DecoderConfig)
    zeros = {name: torch.zeros_like(tensor) for name, tensor in checkpoint.model.items()}
    weights = model_tensors(trained_model(replace(checkpoint, model=zeros), step_directory).model)
    names, retold = _names_in(folder_of(base), base, config.model, weights, ITS_BASE)
    if retold is not None:
        raise ConfigError(base, "adapters of its class are read, but not written", ITS_BASE)
    ours = {
        f"{name.removesuffix('.A_RI')}.weight": (A_RI, checkpoint.model[f"{name.removesuffix('A_RI')}B_OR"])
        for name, A_RI in checkpoint.model.items()
        if name.endswith(".A_RI")
    }
    if without := sorted(ours.keys() - {name for each in names for name in each.ours}):
        raise ConfigError("adapter.targets", f"in PEFT there is no adapter beside {without[0]}", MERGE_HERE)
    modules = {each.theirs.removesuffix(".weight"): each for each in names}
    there = {
        module: _joined(each, [ours.get(name) or _none(weights[name]) for name in each.ours])
        for module, each in modules.items()
        if ours.keys() & set(each.ours)
    }
    values = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": _targets(there.keys(), modules.keys() - there.keys()),
        "fan_in_fan_out": names[0].side_by_side,
        **_sizes(adapter, {module: len(A_RI) for module, (A_RI, _) in there.items()}),
    }
    tensors = {
        f"base_model.model.{module}.lora_{letter}.weight": factor
        for module, pair in there.items()
        for letter, factor in zip("AB", pair, strict=True)
    }
    return values, tensors


def _names_in(
    folder: Path, where: str, config: DecoderConfig, weights: Tensors, fix: Fix
) -> tuple[list[TensorNames], Retelling | None]:
    """As `linear_names` of a folder that must hold this model with these weights: ConfigError if it holds another."""
    hf_config, their_config, theirs, _ = model_in(folder, where)
    written = {**knobs_of(their_config), "context_length": config.context_length}  # of which no weight depends
    require_all_written(config, written, where, fix)
    for name in sorted(weights.keys() | theirs.keys()):
        if name not in weights or name not in theirs or not torch.equal(weights[name].float(), theirs[name]):
            raise ConfigError(where, f"{name} is not the same as in the run of the base", fix)
    return linear_names(hf_config, where)


def _require_lora(values: Mapping[str, Any], where: str) -> str:
    """The name of the base. Raises CheckpointError for what no adapter here has."""
    if values.get("peft_type") != "LORA":
        raise CheckpointError(where, f"peft_type is {values.get('peft_type')!r}, and not LORA", MERGE_THERE)
    for key in sorted(values.keys() - READ - SHOWN - OF_TRAINING - WITHOUT_MEANING):
        if values[key] not in (None, False, "none", [], {}):
            raise CheckpointError(where, f"{key} is {values[key]!r}, which no adapter here has", MERGE_THERE)
    if values.get("init_lora_weights") not in PLAIN_STARTS:
        what = f"init_lora_weights is {values['init_lora_weights']!r}, which may have changed its base"
        raise CheckpointError(where, what, MERGE_THERE)
    patterns = values.get("alpha_pattern") or {}
    if not isinstance(patterns, dict) or any(not re.fullmatch(r"[\w.]+", name) for name in patterns):
        raise CheckpointError(where, "alpha_pattern does not map plain names of modules", MERGE_THERE)
    base = values.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(where, "base_model_name_or_path names no base", "write there the folder of its base")
    return base


def _pairs(tensors: Tensors, where: str) -> dict[str, Factors]:
    """The factors A and B beside each module. CheckpointError for anything else in the file."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in sorted(tensors.items()):
        match = FACTOR.fullmatch(name)
        if match is None or tensor.ndim != 2 or tensor.dtype not in FLOATS:
            raise CheckpointError(where, f"tensor {name} is no factor of a LoRA beside a linear layer", MERGE_THERE)
        found.setdefault(match[1], {})[match[2]] = tensor.float()
    for module, pair in found.items():
        if pair.keys() != {"A", "B"} or not len(pair["A"]) == pair["B"].size(1) > 0:
            raise CheckpointError(where, f"A and B of {module} are no pair", SAVE_AGAIN)
    if not found or (culprit := first_not_finite(tensors)) is not None:
        wrong = f"{culprit} holds NaN or infinity" if found else f"no factors in {ADAPTER_WEIGHTS}"
        raise CheckpointError(where, wrong, SAVE_AGAIN)
    return {module: (pair["A"], pair["B"]) for module, pair in found.items()}


def _scaled(pairs: dict[str, Factors], values: Mapping[str, Any], where: str) -> tuple[dict[str, Factors], float]:
    """The factors with one scale for all of them, and that scale: B takes the rest of its own."""
    scales = {module: _scale(values, module, len(A_RI), where) for module, (A_RI, _) in pairs.items()}
    scale = next(iter(scales.values()))
    return {module: (A_RI, B_OR * (scales[module] / scale)) for module, (A_RI, B_OR) in pairs.items()}, scale


def _scale(values: Mapping[str, Any], module: str, rank: int, where: str) -> float:
    """The number by which B A is multiplied: alpha / R, or with rslora alpha / sqrt(R) (Kalajdzievski 2023)."""
    of_names = (values.get("alpha_pattern") or {}).items()
    alphas = [alpha for name, alpha in of_names if f".{module}".endswith(f".{name}")]
    alpha = [*alphas, values.get("lora_alpha", 8)][0]
    if type(alpha) not in (int, float) or not 0 < alpha < 1e30:
        raise CheckpointError(where, f"alpha of {module} is {alpha!r}, not a positive number", SAVE_AGAIN)
    return float(alpha / (sqrt(rank) if values.get("use_rslora") else rank))


def _ours(
    there: Mapping[str, Factors], names: Iterable[TensorNames], retold: Retelling | None, weights: Tensors, where: str
) -> dict[str, Factors]:
    """The factors beside our matrices, by their names. CheckpointError for another module, or another shape."""
    places = {each.theirs: each for each in names}
    ours: dict[str, Factors] = {}
    for module, (A_RI, B_OR) in there.items():
        rows = {f"{module}.weight": B_OR}
        found = {name: part for name, part in (retold(rows) if retold else rows).items() if name in places}
        if not found:
            raise CheckpointError(where, f"{module} is no linear layer inside a block here", MERGE_THERE)
        for name, part in found.items():
            each = places[name]
            shapes = [weights[matrix].shape for matrix in each.ours]
            if (len(part), A_RI.size(1)) != (sum(n_rows for n_rows, _ in shapes), shapes[0][1]):
                raise CheckpointError(where, f"A and B are not of the shape of {each.ours[0]}", SAVE_AGAIN)
            ours |= {matrix: (A_RI, B) for matrix, B in zip(each.ours, each.rows_to_ours(part), strict=True)}
    return ours


def _joined(names: TensorNames, parts: list[Factors]) -> Factors:
    """The factors of a fused matrix: with one A, if that is the same for all of its parts, else with all of them."""
    used = [A_RI for A_RI, _ in parts if len(A_RI)]
    if all(torch.equal(A_RI, used[0]) for A_RI in used):
        rows = torch.cat([F.pad(B_OR, (0, len(used[0]) - B_OR.size(1))) for _, B_OR in parts])
        return used[0], names.rows_to_theirs(rows)
    rows = torch.block_diag(*(B_OR for _, B_OR in parts))  # type: ignore[no-untyped-call]
    return torch.cat(used), names.rows_to_theirs(rows)


def _sizes(adapter: LoRAConfig, ranks: Mapping[str, int]) -> dict[str, Any]:
    """The keys about rank and alpha: alpha / rank is the same for all modules."""
    others = {module: rank for module, rank in ranks.items() if rank != adapter.rank}
    alphas = {module: adapter.alpha * rank / adapter.rank for module, rank in others.items()}
    return {"r": adapter.rank, "lora_alpha": adapter.alpha, "rank_pattern": others, "alpha_pattern": alphas}


def _padded(factors: Mapping[str, Factors], rank: int) -> dict[str, Tensor]:
    """The tensors of a run, all of one rank: zeros make up the difference."""
    tensors = {}
    for name, (A_RI, B_OR) in factors.items():
        layer = name.removesuffix(".weight")
        tensors[f"{layer}.A_RI"] = F.pad(A_RI, (0, 0, 0, rank - len(A_RI)))
        tensors[f"{layer}.B_OR"] = F.pad(B_OR, (0, rank - B_OR.size(1)))
    return tensors


def _none(weight_OI: Tensor) -> Factors:
    """The factors beside a matrix without an adapter: of rank 0."""
    return weight_OI.new_zeros(0, weight_OI.size(1)), weight_OI.new_zeros(weight_OI.size(0), 0)


def _layer(name: str) -> str:
    """W_Q of `blocks.0.attention.sublayer.W_Q.weight`: a name as in adapter.targets."""
    return name.split(".")[-2]


def _targets(adapted: Iterable[str], others: Iterable[str]) -> list[str]:
    """The last parts of the modules' names; the last two where one is the name of another module, too."""
    last = {name.rpartition(".")[2] for name in adapted}
    is_clear = last.isdisjoint(name.rpartition(".")[2] for name in others)
    return sorted(last if is_clear else {".".join(name.split(".")[-2:]) for name in adapted})

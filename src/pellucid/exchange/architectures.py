"""Converts a decoder to a class of Hugging Face transformers, and back: dicts and tensors only, no files.

`classes.py` describes the classes, `config_json.py` writes and reads their config, `layouts.py` lays out tensors.
Weights are renamed and moved, not computed, so the logits stay the same (but for the gains and embeddings of Gemma).
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors
from pellucid.checkpoint.training_state import first_not_finite, model_tensors
from pellucid.config.model import BiasPlace, DecoderConfig, NoPositionConfig, RotaryConfig, SinusoidalConfig
from pellucid.errors import CheckpointError, ConfigError
from pellucid.exchange.classes import ARCHITECTURES, Architecture
from pellucid.exchange.config_json import DAMAGED, bias_flags, biases_of, read_config, written_config
from pellucid.exchange.knobs import knobs_of, require_all_written
from pellucid.exchange.layouts import TensorNames, bias_place, tensor_names
from pellucid.exchange.relatives import MISSING, RELATIVES
from pellucid.exchange.shifted_gains import query_scale
from pellucid.model.build import build_model, head_width
from pellucid.model.positions import Sinusoidal

ANOTHER_VALUE = "to export a model, train it with another value"
EMBEDDING, UNEMBEDDING = "embeddings.embedding_VD", "embeddings.unembedding_VD"
POSITIONS = "positions.positions_TD"
MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias")
NOT_WEIGHTS = (*MASKS, ".rotary_emb.inv_freq")  # in some files
LINEAR = re.compile(r"sublayer\.W_\w+\.weight")  # a matrix inside a block, but of no expert
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

Retelling = Callable[[Tensors], Tensors]


def to_hugging_face(
    config: DecoderConfig, tensors: Tensors, vocab_size: int, *, any_tokenizer: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config.json and the tensors of a class that computes the same as this decoder.

    `tensors` are named as in model.safetensors; `any_tokenizer` as in `class_for`. Raises ConfigError, naming the knob,
    if there is no such class.
    """
    architecture = class_for(config, tensors, any_tokenizer=any_tokenizer)
    hf_config = written_config(architecture, config, vocab_size, used_biases(tensors))
    hf_config["torch_dtype"] = str(tensors[EMBEDDING].dtype).removeprefix("torch.")
    names = _names(architecture, config, hf_config)
    computed = _computed_positions(config, tensors[EMBEDDING])
    written = knobs_of(read_config(architecture, {**architecture.defaults, **hf_config}, architecture.name)[0])
    written |= {"position": config.position.type} if computed else {}
    require_all_written(config, written, architecture.name, ANOTHER_VALUE)
    all_tensors = {**tensors, **computed}
    without_place = sorted(all_tensors.keys() - {name for each in names for name in each.ours})
    if unused := [name for name in without_place if all_tensors[name].any()]:
        what = f"{architecture.name} has no place for {unused[0]}"
        raise ConfigError("model", what, "export a run without it, as the one that it started from")
    hf_tensors = _laid_out(names, all_tensors)
    return hf_config, architecture.untold(hf_config, hf_tensors) if architecture.untold else hf_tensors


def from_hugging_face(
    hf_config: dict[str, Any], hf_tensors: Tensors, where: str
) -> tuple[DecoderConfig, dict[str, Tensor], int]:
    """The decoder that computes the same as a model of transformers: config, tensors in float32, vocabulary size.

    Raises CheckpointError at `where` if there is none, or if the tensors do not fit the config.
    """
    architecture = _class_of(hf_config, where)
    values = {**architecture.defaults, **hf_config}
    config, vocab_size = read_config(architecture, values, where)
    hf_tensors = _retold(architecture, values, hf_tensors, where)
    expected = _expected(config, vocab_size, len(hf_tensors), where)
    names = _names(architecture, config, values)
    expected_there = _laid_out(names, expected)
    renamed = _renamed(architecture, hf_tensors, expected_there, where)
    _require_fit(expected_there, renamed, where)

    tensors: dict[str, Tensor] = {}
    for each in names:
        tensors.update(zip(each.ours, each.to_ours(renamed[each.theirs].float()), strict=True))
    hint = hf_config.get("pellucid")
    return *_as_exported(config, vocab_size, tensors, hint if isinstance(hint, dict) else {}), vocab_size


def linear_names(hf_config: Mapping[str, Any], where: str) -> tuple[list[TensorNames], Retelling | None]:
    """The matrices of linear layers inside the blocks of such a model, and how tensors of its file become those.

    None if they are those already. Those of experts are left out. Raises CheckpointError as `from_hugging_face` does.
    """
    architecture = _class_of(hf_config, where)
    values = {**architecture.defaults, **hf_config}
    names = _names(architecture, read_config(architecture, values, where)[0], values)
    # Of a class that is written, only others are retold, unless queries are multiplied.
    differ = architecture.retold and (not architecture.untold or query_scale(values) != 1)
    retold = partial(_retold, architecture, values, where=where) if differ else None
    return [each for each in names if LINEAR.search(each.ours[0])], retold


def class_for(config: DecoderConfig, tensors: Tensors, *, any_tokenizer: bool = False) -> Architecture:
    """The class that computes the same as the decoder, with the fewest unused biases. ConfigError, naming the knob.

    any_tokenizer: only one that transformers loads with the tokenizer beside it, not with the class's own.
    """
    biases = used_biases(tensors)
    classes = [each for each in ARCHITECTURES if not (any_tokenizer and each.own_tokenizer)]
    lacking = [(architecture, _lacks(architecture, config, biases)) for architecture in classes]
    if possible := [architecture for architecture, knobs in lacking if not knobs]:
        return min(possible, key=lambda each: len(biases_of(each, bias_flags(each, biases)) - biases))
    # Of the classes that have all knobs left at their defaults, the nearest: a knob that was changed is named.
    usual = DecoderConfig(context_length=1, d_model=2, n_layers=1, n_heads=1)
    near = [knobs for _, knobs in lacking if all(_value(knob, config) != _value(knob, usual) for knob in knobs)]
    knob = min(near, key=lambda knobs: (len(knobs), knobs != ["bias"]))[0]  # biases are the easiest to do without
    value = getattr(_value(knob, config), "type", _value(knob, config))
    what = f"no class of transformers has {value} here, with all other knobs as they are"
    raise ConfigError(f"model.{knob}", what, ANOTHER_VALUE)


def used_biases(tensors: Tensors) -> set[BiasPlace]:
    """The places that have biases; those that are all zeros do not count."""
    of_layers = [name for name in tensors if name.endswith(".bias") and name.startswith(("blocks.", "final_norm."))]
    return {bias_place(name) for name in of_layers if tensors[name].any()}


def _lacks(architecture: Architecture, config: DecoderConfig, biases: set[BiasPlace]) -> list[str]:
    """The knobs that a class cannot match."""
    experts = config.experts
    rope = config.position if isinstance(config.position, RotaryConfig) else None
    width = head_width(config)
    own_width = architecture.sets_head_width and not (architecture.divides_width and config.d_model % config.n_heads)
    has = {
        "norm_placement": config.norm_placement in architecture.placements,
        "logit_soft_cap": config.logit_soft_cap is None or "logit_soft_cap" in architecture.soft_caps,
        "attention_soft_cap": config.attention_soft_cap is None or "attention_soft_cap" in architecture.soft_caps,
        "attention": config.attends_by_softmax and (config.window is None or architecture.window is not None),
        "attention_mask": config.attention_mask == "causal",
        "attention.window": config.window != 1,  # with a cache, transformers' classes see one token more
        "attention.full_layers": architecture.mixes_windows or not getattr(config.attention, "full_layers", ()),
        "feed_forward": (experts is not None) == architecture.experts and not (experts and experts.shared_experts),
        "position.unrotated_last_layers": not rope or not rope.unrotated_last_layers or architecture.unrotated,
        "position.unrotated_layers": not rope or not rope.unrotated_layers or architecture.unrotated,
        "position.base_in_windows": not rope or not rope.base_in_windows or architecture.base_in_windows is not None,
        "position.stretch": not (architecture.base_in_windows and config.window and rope and rope.stretch)
        or rope.base_in_windows is not None,  # such a class has no stretch in windows
        "position.rotated_fraction": not rope or architecture.rotates_a_part or rope.rotated_width(width) == width,
        "position": config.position.type in architecture.positions,
        "norm": config.norm == architecture.norm,
        "bias": biases <= {bias_place(each.ours[0]) for each in architecture.modules if each.bias},
        "activation": config.activation in architecture.activations,
        "qk_norm": config.qk_norm == architecture.qk_norm,
        "n_kv_heads": architecture.groups_heads or config.n_kv_heads in (None, config.n_heads),
        "head_width": own_width or width * config.n_heads == config.d_model,
    }
    return [knob for knob, possible in has.items() if not possible]


def _value(knob: str, config: DecoderConfig) -> Any:
    path: list[Any] = [config, *knob.split(".")]
    return reduce(lambda value, key: getattr(value, key, None), path)


def _names(architecture: Architecture, config: DecoderConfig, values: Mapping[str, Any]) -> list[TensorNames]:
    """The names of each tensor; `values` of config.json say which modules and biases there are."""
    names = [TensorNames((EMBEDDING,), architecture.embedding)]
    if not config.tied_embeddings:
        names.append(TensorNames((UNEMBEDDING,), architecture.unembedding))
    if "learned" in architecture.positions:
        names.append(TensorNames((POSITIONS,), "transformer.wpe.weight"))
    n_experts = config.experts.n_experts if config.experts else 0
    for module in architecture.modules:
        names.extend(tensor_names(module, values, config.n_layers, n_experts))
    return names


def _laid_out(names: list[TensorNames], tensors: Tensors) -> dict[str, Tensor]:
    """Our tensors in their layout; biases that we lack are zeros."""

    def part(name: str) -> Tensor:
        weight = tensors[name.removesuffix("bias") + "weight"] if name.endswith(".bias") else tensors[name]
        return tensors[name] if name in tensors else weight.new_zeros(weight.size(0))

    return {each.theirs: each.to_theirs([part(name) for name in each.ours]) for each in names}


def _computed_positions(config: DecoderConfig, like: Tensor) -> dict[str, Tensor]:
    """The table that a class with learned positions needs where our positions are sinusoidal or none."""
    match config.position.type:
        case "sinusoidal":
            with torch.device(like.device):
                return {POSITIONS: Sinusoidal(config.context_length, config.d_model).table_TD.to(like.dtype)}
        case "none":
            return {POSITIONS: like.new_zeros(config.context_length, config.d_model)}
        case _:
            return {}


def _class_of(hf_config: Mapping[str, Any], where: str) -> Architecture:
    classes = hf_config.get("architectures") or [""]
    name = str(classes[0]) if isinstance(classes, list) else ""
    for architecture in (*ARCHITECTURES, *RELATIVES):
        without_head = architecture.name.removesuffix("ForCausalLM").removesuffix("LMHeadModel") + "Model"
        if hf_config.get("model_type") == architecture.model_type and name in ("", architecture.name, without_head):
            return architecture
    wrong = f"{name or hf_config.get('model_type') or 'a config.json without model_type'} is no class known here"
    wrong += f": it has {missing}" if (missing := MISSING.get(str(hf_config.get("model_type")))) else ""
    known = ", ".join(each.name for each in (*ARCHITECTURES, *RELATIVES))
    raise CheckpointError(where, wrong, f"choose one of {known}")


def _retold(architecture: Architecture, values: Mapping[str, Any], hf_tensors: Tensors, where: str) -> Tensors:
    """The tensors of the file as those of the class's modules."""
    try:
        return architecture.retold(values, hf_tensors) if architecture.retold else hf_tensors
    except (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        wrong = f"no {architecture.name} has these tensors and values ({error})"
        raise CheckpointError(where, wrong, DAMAGED) from error


def _renamed(architecture: Architecture, hf_tensors: Tensors, expected: Tensors, where: str) -> dict[str, Tensor]:
    """The tensors under the class's names: some files lack its prefix, or have masks, or the tied matrix twice."""
    renamed, unembedding = {}, architecture.unembedding
    for name, tensor in hf_tensors.items():
        name = unembedding if name == "lm_head.weight" else name  # as models in memory call it since version 5
        full_name = name if name in expected else f"{architecture.prefix}{name}"
        if full_name in expected or not name.endswith(NOT_WEIGHTS):
            renamed[full_name if full_name in expected else name] = tensor
    if unembedding in renamed.keys() - expected.keys() and architecture.embedding in renamed:
        tied = renamed.pop(unembedding)
        if not torch.equal(tied.float(), renamed[architecture.embedding].float()):
            wrong = f"{unembedding} is not {architecture.embedding}, though tie_word_embeddings is true"
            raise CheckpointError(where, wrong, "set tie_word_embeddings to false in config.json if both are meant")
    return renamed


def _expected(config: DecoderConfig, vocab_size: int, n_tensors: int, where: str) -> dict[str, Tensor]:
    """Our tensors on the meta device. Damaged sizes raise an error before memory is allocated."""
    if config.n_layers * (config.experts.n_experts if config.experts else 1) > n_tensors:
        raise CheckpointError(where, f"{n_tensors} tensors are too few for {config.n_layers} layers", DAMAGED)
    try:
        return _shapes(config, vocab_size)
    except RuntimeError as error:
        raise CheckpointError(where, f"no machine holds matrices of such sizes ({error})", DAMAGED) from error


def _shapes(config: DecoderConfig, vocab_size: int) -> dict[str, Tensor]:
    with torch.device("meta"):
        return model_tensors(build_model(config, vocab_size))


def _require_fit(expected: Tensors, actual: Tensors, where: str) -> None:
    """Raise CheckpointError unless names and shapes are as expected and all numbers finite."""
    for name, tensor in expected.items():
        if name not in actual:
            raise CheckpointError(where, f"tensor {name} is missing", DAMAGED)
        if actual[name].shape != tensor.shape:
            shapes = f"{list(actual[name].shape)}, not {list(tensor.shape)} as config.json says"
            raise CheckpointError(where, f"tensor {name} has the shape {shapes}", DAMAGED)
        if actual[name].dtype not in FLOATS:
            dtype = str(actual[name].dtype).removeprefix("torch.")
            raise CheckpointError(where, f"tensor {name} holds {dtype}", "choose a model that is not quantized")
    if surplus := actual.keys() - expected.keys():
        raise CheckpointError(where, f"tensor {min(surplus)} is not one of this class", DAMAGED)
    if (culprit := first_not_finite(dict(actual))) is not None:
        raise CheckpointError(where, f"tensor {culprit} holds NaN or infinity", DAMAGED)


def _as_exported(
    config: DecoderConfig, vocab_size: int, tensors: dict[str, Tensor], hint: Mapping[str, Any]
) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """The decoder with the knobs `bias` and `position` from before export, if biases and table still agree."""
    if "bias" in hint:
        before = None
        with suppress(ValidationError):  # an invalid hint is ignored
            before = DecoderConfig.model_validate({**config.model_dump(), "bias": hint["bias"]})
        if before and all(before.has_bias(place) for place in used_biases(tensors)):
            config = before
            expected = _shapes(config, vocab_size)
            tensors = {name: tensors.get(name, torch.zeros(like.shape)) for name, like in expected.items()}
    for position in (SinusoidalConfig(type="sinusoidal"), NoPositionConfig(type="none")):
        if hint.get("position") == position.type and POSITIONS in tensors:
            as_exported = config.model_copy(update={"position": position})
            (table,) = _computed_positions(as_exported, tensors[POSITIONS]).values()
            if torch.equal(table, tensors[POSITIONS]):
                config = as_exported
                del tensors[POSITIONS]
    return config, tensors

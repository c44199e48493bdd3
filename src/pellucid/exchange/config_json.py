"""The config.json of a class of transformers: written from our knobs, and read back into them."""

from collections.abc import Mapping, Set
from math import log
from typing import Any, NoReturn

from pydantic import ValidationError

from pellucid.config.model import BIAS_PLACES, BiasPlace, DecoderConfig, RotaryConfig
from pellucid.errors import CheckpointError
from pellucid.exchange.classes import Architecture
from pellucid.exchange.layouts import bias_place
from pellucid.model.build import head_width

# Features of the classes that no Pellucid model has.
ONLY: dict[str, Any] = {"is_causal": True, "quantization_config": None, "pruned_heads": {}}
ONLY_IN_YARN: dict[str, Any] = {"truncate": True, "mscale_all_dim": None}
SLIDING, FULL = "sliding_attention", "full_attention"
IN_TURNS = {"slow_turns": "low_freq_factor", "fast_turns": "high_freq_factor"}
IN_CLOCKS = {"slow_turns": "beta_slow", "fast_turns": "beta_fast", "attention_factor": "attention_factor"}
DAMAGED = "download the model again, or choose another"


def written_config(
    architecture: Architecture, config: DecoderConfig, vocab_size: int, biases: Set[BiasPlace]
) -> dict[str, Any]:
    """The contents of config.json, with defaults written out, as they differ between versions of transformers."""
    ours = {**config.model_dump(), "d_ff": config.d_ff or 4 * config.d_model}
    written: dict[str, Any] = {
        "architectures": [architecture.name],
        "model_type": architecture.model_type,
        "vocab_size": vocab_size,
        **{key: ours[knob] for knob, key in architecture.sizes.items()},
        architecture.activation: architecture.activations[config.activation][0],
        architecture.epsilon: config.norm_epsilon,
        "tie_word_embeddings": config.tied_embeddings,
        **dict.fromkeys(architecture.dropouts, 0.0),
        **architecture.only,
        **architecture.written,
        **bias_flags(architecture, biases),
        # Zeros and a table of numbers do not show this: `from_hugging_face` reads it, transformers does not.
        "pellucid": {"bias": config.bias, "position": config.position.type},
    }
    if architecture.groups_heads:
        written["num_key_value_heads"] = config.n_kv_heads or config.n_heads
    if architecture.sets_head_width:
        written["head_dim"] = head_width(config)
    if isinstance(config.position, RotaryConfig):
        rotation, (base, share) = rope_parameters(config.position), architecture.older_rotation
        if architecture.rotates_a_part:
            rotation["partial_rotary_factor"] = written[share] = config.position.rotated_fraction
        written |= {base: config.position.base, "rope_parameters": rotation}
        written |= {"rope_scaling": rotation} if config.position.stretch else {}  # its name before version 5
        if key := architecture.base_in_windows:
            written[key] = config.position.base_in_windows or config.position.base
            in_windows = {"rope_type": "default", "rope_theta": written[key]}
            written["rope_parameters"] = {FULL: rotation, SLIDING: in_windows}
        if architecture.unrotated:
            unrotated = config.position.unrotated(config.n_layers)
            written["no_rope_layers"] = [int(layer not in unrotated) for layer in range(config.n_layers)]
    if "parallel" in architecture.placements:
        written["use_parallel_residual"] = config.norm_placement == "parallel"
    if config.experts:
        written["num_local_experts"] = config.experts.n_experts
        written["num_experts_per_tok"] = config.experts.top_k
        if config.d_model % 8 or ours["d_ff"] % 8:
            written["experts_implementation"] = "eager"  # its grouped kernel needs rows of a multiple of 16 bytes
    if architecture.window is not None:
        window = written["sliding_window"] = config.window
        if architecture.window == "layer_types":
            written["use_sliding_window"] = window is not None
            written["max_window_layers"] = config.n_layers if window is None else 0
            windows = [config.window_in(layer) for layer in range(config.n_layers)]
            written["layer_types"] = [FULL if each is None else SLIDING for each in windows]
        if architecture.mixes_windows:  # it needs a number even if no layer has a window
            written["sliding_window"] = window or config.context_length
    written |= {key: ours[knob] for knob, key in architecture.soft_caps.items()}
    if "query_pre_attn_scalar" in architecture.defaults:
        written["query_pre_attn_scalar"] = head_width(config)
    return written


def rope_parameters(rope: RotaryConfig) -> dict[str, Any]:
    """The rotation, as transformers describes it."""
    if rope.stretch is None:
        return {"rope_type": "default", "rope_theta": rope.base}
    kind, names = ("llama3", IN_TURNS) if rope.stretch.linear_in == "turns" else ("yarn", IN_CLOCKS)
    stretch = {name: getattr(rope.stretch, knob) for knob, name in names.items()}
    stretch |= {"factor": rope.stretch.factor, "original_max_position_embeddings": rope.stretch.trained_length}
    return {"rope_type": kind, "rope_theta": rope.base, **stretch}


def read_config(architecture: Architecture, hf_config: Mapping[str, Any], where: str) -> tuple[DecoderConfig, int]:
    """The decoder's config, with any table of positions as learned, and the size of its vocabulary.

    Raises CheckpointError at `where` if a value has the wrong type, or a meaning that Pellucid does not support.
    """
    read = _Reader(architecture, hf_config, where)
    read.require_only({**ONLY, **architecture.only})
    model: dict[str, Any] = {
        **read.sizes(),
        "norm": architecture.norm,
        "norm_epsilon": read.number(architecture.epsilon),
        "norm_placement": read.placement(),
        "activation": read.activation(),
        "position": read.rope() if "rope" in architecture.positions else {"type": "learned"},
        "tied_embeddings": read.flag("tie_word_embeddings"),
        "qk_norm": architecture.qk_norm,
    }
    if architecture.experts:
        n_experts, top_k = read.integer("num_local_experts"), read.integer("num_experts_per_tok")
        model["feed_forward"] = {"type": "moe", "n_experts": n_experts, "top_k": top_k}
    if (window := read.window()) is not None:
        model["attention"] = {"type": "sliding_window", **window}
    else:
        model["position"].pop("base_in_windows", None)
    caps = {knob: key for knob, key in architecture.soft_caps.items() if hf_config[key] is not None}
    model |= {knob: read.number(key) for knob, key in caps.items()}
    for module in architecture.modules:
        if isinstance(module.bias, str):
            read.flag(module.bias)
    model["bias"] = _biases(architecture, hf_config)
    try:
        return DecoderConfig.model_validate(model), read.integer("vocab_size")
    except ValidationError as error:
        message = str(error.errors()[0]["msg"]).removeprefix("Value error, ").replace(";", ",")
        raise CheckpointError(where, f"no decoder has this shape: {message}", DAMAGED) from error


def bias_flags(architecture: Architecture, biases: Set[BiasPlace]) -> dict[str, bool]:
    """The keys about biases, for a model that has them at these places."""
    flags: dict[str, bool] = {}
    for module in architecture.modules:
        if isinstance(module.bias, str):
            flags[module.bias] = flags.get(module.bias, False) or bias_place(module.ours[0]) in biases
    return flags


def biases_of(architecture: Architecture, values: Mapping[str, Any]) -> set[BiasPlace]:
    """The places where the class has biases, with these values of config.json."""
    modules = architecture.modules
    has = [(each, values[each.bias] if isinstance(each.bias, str) else each.bias) for each in modules]
    return {bias_place(each.ours[0]) for each, has_bias in has if has_bias}


def _biases(architecture: Architecture, values: Mapping[str, Any]) -> bool | list[BiasPlace]:
    """The knob `bias` of such a model: everywhere, nowhere, or at these places."""
    places, possible = biases_of(architecture, values), set(BIAS_PLACES) - {"query_key_norms"}
    if architecture.norm != "layer_norm":  # an RMSNorm has none
        possible -= {"norms"}
    places &= possible
    if places == possible:
        return True
    return sorted(places, key=BIAS_PLACES.index) if places else False


class _Reader:
    """Reads one config.json, checks the types of its values, and refuses any that Pellucid does not support."""

    def __init__(self, architecture: Architecture, values: Mapping[str, Any], where: str) -> None:
        self.architecture = architecture
        self.values = values
        self.where = where

    def refuse(self, key: str, possible: str) -> NoReturn:
        wrong = f"{key} is {self.values.get(key)!r}, but Pellucid has {possible}"
        raise CheckpointError(self.where, wrong, "choose another model")

    def require(self, fits: bool, key: str, kind: str) -> None:
        if not fits:
            value = repr(self.values[key]) if key in self.values else "missing"
            raise CheckpointError(self.where, f"{key} is {value}, not {kind}", DAMAGED)

    def require_only(self, possible: Mapping[str, Any]) -> None:
        """Raise CheckpointError for a key with another value than the one that Pellucid has."""
        for key, only in possible.items():
            if bool(self.values.get(key, only)) != bool(only):
                self.refuse(key, f"{only!r} only")

    def integer(self, key: str) -> int:
        value = self.values.get(key)
        self.require(type(value) is int and 0 < value < 2**31, key, "a positive integer")
        return value  # type: ignore[return-value]

    def number(self, key: str) -> float:
        value = self.values.get(key)
        self.require(type(value) in (int, float), key, "a number")
        return float(value)  # type: ignore[arg-type]

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        self.require(isinstance(value, bool), key, "true or false")
        return bool(value)

    def sizes(self) -> dict[str, int | None]:
        keys = self.architecture.sizes
        sizes: dict[str, int | None] = {knob: self.integer(key) for knob, key in keys.items() if knob != "d_ff"}
        d_model, n_heads = self.integer(keys["d_model"]), self.integer(keys["n_heads"])
        # Three keys may be null: d_ff is then 4 n_embd, n_kv_heads is n_heads, and heads have their usual width.
        sizes["d_ff"] = None if self.values.get("n_inner", 0) is None else self.integer(keys["d_ff"])
        if self.architecture.groups_heads and self.values.get("num_key_value_heads") is not None:
            sizes["n_kv_heads"] = self.integer("num_key_value_heads")
        if self.values.get("head_dim") is not None and self.integer("head_dim") * n_heads != d_model:
            if not self.architecture.sets_head_width:
                self.refuse("head_dim", f"{d_model} / {n_heads} for {self.architecture.name}")
            sizes["head_width"] = self.integer("head_dim")
        return sizes

    def placement(self) -> str:
        first, *others = self.architecture.placements
        return others[0] if others and self.flag("use_parallel_residual") else first

    def activation(self) -> str:
        key, activations = self.architecture.activation, self.architecture.activations
        ours = {name: knob for knob, names in activations.items() for name in names}
        if str(self.values.get(key)) not in ours:
            self.refuse(key, " or ".join(ours))
        return ours[str(self.values[key])]

    def rope(self) -> dict[str, Any]:
        """The rotation: in `rope_parameters` since transformers 5, in `rope_theta` and `rope_scaling` before."""
        key = "rope_scaling" if self.values.get("rope_scaling") else "rope_parameters"
        parameters = self.values.get(key) or {}
        self.require(isinstance(parameters, dict), key, "an object")
        in_windows = None
        if self.architecture.base_in_windows and parameters.keys() & {FULL, SLIDING}:
            in_windows, parameters = parameters.get(SLIDING) or {}, parameters.get(FULL) or {}
            are_objects = isinstance(in_windows, dict) and isinstance(parameters, dict)
            self.require(are_objects, key, "an object for each kind of layer")
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        if kind not in self.architecture.rotations or any(isinstance(value, dict) for value in parameters.values()):
            self.refuse(key, "one rotation, stretched as Llama 3.1's, by YaRN, evenly or not at all")
        base, share = self.architecture.older_rotation
        older = {"rope_theta": self.values.get(base, 1e4), "partial_rotary_factor": self.values.get(share, 1.0)}
        rotation = _Reader(self.architecture, {**self.values, **older, **parameters}, self.where)
        fraction = rotation.number("partial_rotary_factor")
        if fraction != 1 and not self.architecture.rotates_a_part:
            rotation.refuse("partial_rotary_factor", f"1 for {self.architecture.name}")
        rope = {"type": "rope", "base": rotation.number("rope_theta"), "rotated_fraction": fraction}
        if kind != "default":
            rope["stretch"] = rotation.stretch(kind)
        if self.architecture.base_in_windows:
            rope |= self.in_windows(self.architecture.base_in_windows, in_windows or {}, rope)
        return rope | (self.unrotated() if self.architecture.unrotated else {})

    def in_windows(self, key: str, rotation: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        """The base in layers with a window, if their clocks are not those of the other layers."""
        if rotation.get("rope_type", "default") != "default":
            self.refuse("rope_parameters", "no stretched rotation in layers with a window")
        base = _Reader(self.architecture, {key: self.values[key], **rotation}, self.where)
        number = base.number("rope_theta" if "rope_theta" in rotation else key)
        return {} if number == others["base"] and "stretch" not in others else {"base_in_windows": number}

    def stretch(self, kind: str) -> dict[str, Any]:
        """The stretch of this kind that the values describe. In a linear one no clock is fast."""
        factor = self.number("factor")
        if kind == "linear":
            return {"factor": factor, "trained_length": 1}  # in which no clock makes a turn
        usual = {"original_max_position_embeddings": self.values.get("max_position_embeddings")}
        if kind == "yarn":
            usual |= {"beta_slow": 1.0, "beta_fast": 32.0, "attention_factor": 0.1 * log(max(factor, 1)) + 1}
            self.require_only(ONLY_IN_YARN)
        values = {**usual, **{key: value for key, value in self.values.items() if value is not None}}
        read = _Reader(self.architecture, values, self.where)
        linear_in, names = ("clocks", IN_CLOCKS) if kind == "yarn" else ("turns", IN_TURNS)
        stretch = {knob: read.number(name) for knob, name in names.items()}
        trained_length = read.integer("original_max_position_embeddings")
        return {**stretch, "factor": factor, "trained_length": trained_length, "linear_in": linear_in}

    def unrotated(self) -> dict[str, Any]:
        """The layers that do not rotate: those that have a 0 in a list, or each fourth."""
        n_layers, each = self.integer("num_hidden_layers"), self.integer("no_rope_layer_interval")
        self.require(n_layers < 10_000, "num_hidden_layers", "a number of layers")  # before there is a list of them
        rotates = self.values.get("no_rope_layers") or [(layer + 1) % each for layer in range(n_layers)]
        self.require(
            isinstance(rotates, list) and len(rotates) >= n_layers, "no_rope_layers", "a number for each layer"
        )
        unrotated = [layer for layer in range(n_layers) if not rotates[layer]]
        if unrotated == list(range(n_layers - len(unrotated), n_layers)):
            return {"unrotated_last_layers": len(unrotated)}
        return {"unrotated_layers": unrotated}

    def window(self) -> dict[str, Any] | None:
        """The window, and the layers without it if the class may have some; None if no layer has one."""
        n_layers = self.integer(self.architecture.sizes["n_layers"])
        if self.architecture.mixes_windows:
            return self.mixed_windows(n_layers)
        in_each = self.architecture.window == "layer_types"
        if self.architecture.window is None or self.values.get("sliding_window") is None:
            return None
        if in_each and self.values.get("use_sliding_window") is not True:
            return None
        first = self.number("max_window_layers") if in_each else 0
        kinds = self.values.get("layer_types")
        self.require(kinds is None or isinstance(kinds, list), "layer_types", "a list")
        if kinds is None:
            all_slide, none_slides = first <= 0, first >= n_layers
        else:
            all_slide, none_slides = all(kind == SLIDING for kind in kinds), SLIDING not in kinds
        if all_slide:
            return {"window": self.integer("sliding_window")}
        if not (none_slides and in_each):
            self.refuse("max_window_layers" if kinds is None else "layer_types", "the same window in all layers")
        return None

    def mixed_windows(self, n_layers: int) -> dict[str, Any] | None:
        """As `window`: a list says which layers have one, or all have but each so many-th."""
        self.require(n_layers < 10_000, "num_hidden_layers", "a number of layers")  # before there is a list of them
        each = self.integer("sliding_window_pattern")
        kinds = self.values.get("layer_types") or [SLIDING if (n + 1) % each else FULL for n in range(n_layers)]
        known = isinstance(kinds, list) and len(kinds) == n_layers and all(kind in (SLIDING, FULL) for kind in kinds)
        self.require(known, "layer_types", "a kind of attention for each layer")
        full_layers = [layer for layer, kind in enumerate(kinds) if kind == FULL]
        if len(full_layers) == n_layers:
            return None
        return {"window": self.integer("sliding_window"), "full_layers": full_layers}

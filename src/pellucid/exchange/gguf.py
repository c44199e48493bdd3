"""Writes a decoder as a GGUF file, llama.cpp's format, with its weights, config and vocabulary.

    write_gguf(config, tensors, tokenizer, path, name="fables")

A GGUF file names an architecture: a model becomes a `qwen3`, `qwen2`, `llama` or `gpt2`, if necessary rewritten
(`rewrites.py`). A `llama` may have biases and experts. The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import json
import re
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.checkpoint.step_directory import Tensors
from pellucid.config.model import BiasPlace, DecoderConfig, RotaryConfig
from pellucid.errors import ConfigError, Fix, InputOutputError, Option
from pellucid.exchange.architectures import to_hugging_face, used_biases
from pellucid.exchange.config_json import rope_parameters
from pellucid.exchange.knobs import knobs_of, require_all_written
from pellucid.exchange.precision import BLOCK, IN_BLOCKS, Precision, rounded
from pellucid.exchange.rewrites import as_llama
from pellucid.exchange.tokenizer_files import cuts_as
from pellucid.files import require_room, written_whole
from pellucid.model.build import head_width
from pellucid.model.positions import clock_angles
from pellucid.model.stretch import stretched
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import JINJA

Keys = dict[str, tuple[str, ...]]
# The keys in which a file holds a knob; `_written` has what the architecture adds.
SIZES: Keys = {
    "context_length": ("context_length",),
    "d_model": ("embedding_length",),
    "n_layers": ("block_count",),
    "d_ff": ("feed_forward_length",),
    "n_heads": ("head_count",),
}
GPT2: Keys = {**SIZES, "norm_epsilon": ("layer_norm_eps",)}
LLAMA: Keys = {
    **SIZES,
    "norm_epsilon": ("layer_norm_rms_eps",),
    "n_kv_heads": ("head_count_kv",),
    "head_width": ("key_length", "value_length", "rope_dimension_count"),
    "position.base": ("rope_freq_base",),
}
EXPERTS: Keys = {"feed_forward.n_experts": ("expert_count",), "feed_forward.top_k": ("expert_used_count",)}
KEYS = {"gpt2": GPT2, "llama": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA}
LLAMA_BIASES: dict[str, tuple[BiasPlace, ...]] = {  # by the argument with which transformers' Llama has them
    "attention_bias": ("queries_keys_values", "attention_output"),
    "mlp_bias": ("feed_forward",),
}
QWEN3_HEAD_WIDTH = 128  # transformers assumes this for a qwen3, and ignores the file's key_length
SLOWNESS = "rope_freqs.weight"  # of a llama: how many times slower each clock turns
EXPORT_TO_HF = Fix("export with {}", Option("--to hf", 'to="hf"'))
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # types of tokens


def write_gguf(
    config: DecoderConfig,
    tensors: Tensors,
    tokenizer: Tokenizer,
    path: Path,
    *,
    name: str,
    precision: Precision = "fp32",
) -> tuple[str, DecoderConfig, int]:
    """Write the file atomically. Returns its architecture, the model's config as such, and the number of weights.

    Raises ConfigError, naming the knob, for a model that GGUF does not support; InputOutputError if there is no room.
    """
    gguf = _library()
    architecture, config, hf_tensors = as_gguf(config, tensors, tokenizer.vocab_size)
    writer = gguf.GGUFWriter(None, architecture)
    writer.add_name(name)
    file_type = {"fp32": "ALL_F32", "fp16": "MOSTLY_F16"}.get(precision, f"MOSTLY_{precision.upper()}")
    writer.add_file_type(gguf.LlamaFileType[file_type])
    _add_shape(writer, architecture, config)
    _add_vocabulary(writer, tokenizer)
    n_bytes = 0
    for tensor_name, tensor in _named(gguf, architecture, config, hf_tensors).items():
        stored, kind = _stored(gguf, tensor_name, tensor, precision)
        writer.add_tensor(tensor_name, stored, raw_dtype=kind)
        n_bytes += stored.nbytes
    try:
        require_room(path.parent, n_bytes)
    except OSError as error:
        raise InputOutputError(str(path), str(error), "make room, or choose another folder") from None
    with written_whole(path) as draft, closing(writer):
        writer.write_header_to_file(draft)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.flush()
    return architecture, config, sum(tensor.numel() for tensor in hf_tensors.values())


def as_gguf(config: DecoderConfig, tensors: Tensors, vocab_size: int) -> tuple[str, DecoderConfig, dict[str, Tensor]]:
    """The architecture that the model becomes, its config as such, and its tensors with the names of transformers."""
    if config.position.type in ("learned", "sinusoidal"):
        if config.activation != "gelu_tanh":
            what = f"with {config.position.type} positions a GGUF is a GPT-2, which has no {config.activation}"
            raise ConfigError("model.activation", what, EXPORT_TO_HF.after("train with gelu_tanh"))
    elif (config.position.type, config.norm, config.activation) != ("none", "layer_norm", "gelu_tanh"):
        if config.activation not in ("relu_squared", "swiglu"):
            what = f"without learned positions a GGUF is a llama or a qwen3, which have no {config.activation}"
            raise ConfigError("model.activation", what, EXPORT_TO_HF.after("train with swiglu or relu_squared"))
        if config.qk_norm and used_biases(tensors):
            raise ConfigError("model.bias", "the qwen3 of GGUF has no biases", EXPORT_TO_HF.after("train with false"))
        width = QWEN3_HEAD_WIDTH if config.qk_norm else None
        config, tensors = as_llama(config, tensors, width)
    as_qwen2 = head_width(config) * config.n_heads == config.d_model  # its heads have this width in a GGUF
    hf_config, hf_tensors = to_hugging_face(config, tensors, vocab_size, any_tokenizer=not as_qwen2)
    architecture = "llama" if config.experts else hf_config["model_type"]
    if architecture not in KEYS:
        knob = "attention" if config.norm_placement == "pre" else "norm_placement"
        raise ConfigError(f"model.{knob}", f"no {architecture} is written as GGUF here", EXPORT_TO_HF)
    require_all_written(config, _written(architecture, config), f"the {architecture} of GGUF", EXPORT_TO_HF)
    if isinstance(config.position, RotaryConfig) and config.position.stretch:
        speeds_I = clock_angles(2, head_width(config), config.position.base)[1]
        stretch = stretched(**config.position.stretch.model_dump(), base=config.position.base)
        hf_tensors[SLOWNESS] = speeds_I / stretch.slowed(speeds_I, speeds_I)
    if architecture == "llama":  # all that the file has, zeros among them
        biases = [place for flag, places in LLAMA_BIASES.items() if hf_config.get(flag) for place in places]
        config = config.model_copy(update={"bias": tuple(biases)})
    return architecture, config, hf_tensors


def loading_arguments(architecture: str, config: DecoderConfig) -> dict[str, Any]:
    """Arguments that `from_pretrained(..., gguf_file=...)` needs, as it does not read these values in the file."""
    d_ff = config.d_ff or 4 * config.d_model
    unread: dict[str, tuple[Any, Any]] = {}
    match architecture:
        case "qwen3":
            unread = {"head_dim": (head_width(config), QWEN3_HEAD_WIDTH)}
        case "gpt2":
            unread = {"n_positions": (config.context_length, 1024), "n_inner": (d_ff, 4 * config.d_model)}
        case "llama":
            unread = {flag: (config.has_bias(places[0]), False) for flag, places in LLAMA_BIASES.items()}
            if isinstance(config.position, RotaryConfig) and config.position.stretch:
                unread["rope_parameters"] = rope_parameters(config.position), None
    return {key: value for key, (value, default) in unread.items() if value != default}


def _library() -> Any:
    try:
        import gguf
    except ImportError:
        fix = "pip install 'pellucid[gguf]'"
        raise ConfigError(Option("--to gguf", 'to="gguf"'), "the package gguf is not installed", fix) from None
    return gguf


def _add_shape(writer: Any, architecture: str, config: DecoderConfig) -> None:
    knobs = knobs_of(config)
    for knob, keys in _keys(architecture, config).items():
        for key in keys:
            getattr(writer, f"add_{key}")(knobs[knob])


def _keys(architecture: str, config: DecoderConfig) -> Keys:
    return KEYS[architecture] | (EXPERTS if config.experts else {})


def _written(architecture: str, config: DecoderConfig) -> dict[str, Any]:
    """The knobs of the decoder that a program builds from the file: by its keys, tensors and architecture."""
    knobs, is_gpt2 = knobs_of(config), architecture == "gpt2"
    in_keys = {knob: knobs[knob] for knob in (*_keys(architecture, config), "tied_embeddings")}
    built = DecoderConfig.model_validate(
        {knob: value for knob, value in in_keys.items() if "." not in knob}
        | {"norm": "layer_norm" if is_gpt2 else "rms_norm", "activation": "gelu_tanh" if is_gpt2 else "swiglu"}
        | {"qk_norm": architecture == "qwen3", "feed_forward": {"type": "moe" if config.experts else "dense"}}
    )
    # GPT-2 has a table of its positions in the tensors, a llama of what its clocks are slowed by.
    in_tensors = {"gpt2": ["position"], "llama": [knob for knob in knobs if knob.startswith("position.stretch")]}
    in_file = in_keys | {knob: knobs[knob] for knob in in_tensors.get(architecture, ())}
    return knobs_of(built) | in_file | {"position.stretch.attention_factor": 1.0}


def _named(gguf: Any, architecture: str, config: DecoderConfig, hf_tensors: Tensors) -> dict[str, Tensor]:
    """The tensors with GGUF's names and layout."""
    (kind,) = (kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.n_layers)
    n_heads, n_kv_heads = config.n_heads, config.n_kv_heads or config.n_heads
    named = defaultdict(list)
    for hf_name, tensor in hf_tensors.items():
        module, _, parameter = hf_name.rpartition(".")
        if architecture == "gpt2" and ".h." in hf_name and tensor.ndim == 2:
            tensor = tensor.mT  # only transformers has GPT-2's matrices transposed
        if architecture == "llama" and module.endswith(("q_proj", "k_proj")):
            tensor = _neighbours(tensor, n_heads if module.endswith("q_proj") else n_kv_heads)
        of_all_experts = re.sub(r"\.experts\.\d+\.", ".experts.", module)
        named[f"{names.get_name(of_all_experts)}.{parameter}"].append(tensor)
    return {name: torch.stack(parts) if "_exps." in name else parts[0] for name, parts in named.items()}


def _neighbours(matrix: Tensor, n_heads: int) -> Tensor:
    """A matrix or bias reordered for llama.cpp, which rotates coordinates 2i and 2i + 1, not i and i + K/2."""
    halves = matrix.reshape(n_heads, 2, -1, *matrix.shape[1:])
    return halves.transpose(1, 2).reshape(matrix.shape)


def _stored(gguf: Any, name: str, tensor: Tensor, precision: Precision) -> tuple[NDArray[Any], Any]:
    """A tensor as stored in the file, and its type: more bits where llama.cpp's converter, too, takes more."""
    if tensor.ndim == 1 or name.startswith("position_embd") or ".ffn_gate_inp." in name:
        precision = "fp32"
    elif precision in IN_BLOCKS and tensor.size(-1) % BLOCK:
        precision = "fp16"
    kind = gguf.GGMLQuantizationType[{"fp32": "F32", "fp16": "F16"}.get(precision, precision.upper())]
    numbers = tensor.detach().cpu()
    small = numbers if precision in IN_BLOCKS else rounded(name, numbers, precision)
    return gguf.quantize(small.float().contiguous().numpy(), kind), kind


def _add_vocabulary(writer: Any, tokenizer: Tokenizer) -> None:
    """Add a vocabulary of byte-level byte-pair encoding. ConfigError if its cuts have no name there."""
    saved = json.loads(tokenizer.to_json())
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in saved["model"].get("merges", ())]
    if not merges:  # the library cannot write an empty list, and programs need the list
        fix = EXPORT_TO_HF.after("train with bpe")
        raise ConfigError("tokenizer.type", "GGUF needs merges, and this vocabulary has none", fix)
    added_tokens, cuts = saved["added_tokens"], cuts_as(tokenizer)
    anywhere = all(not token[rule] for token in added_tokens for rule in ("single_word", "lstrip", "rstrip"))
    if not (cuts and anywhere):
        what = "it cuts text into words in another way than GPT-2, Llama 3 and Qwen2"
        raise ConfigError("tokenizer", what, EXPORT_TO_HF)
    token_of = {id_: token for token, id_ in saved["model"]["vocab"].items()}
    type_of = dict.fromkeys(token_of, NORMAL)
    for added in added_tokens:
        token_of[added["id"]] = added["content"]
        type_of[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cuts)
    writer.add_token_list([token_of[id_] for id_ in range(tokenizer.vocab_size)])
    writer.add_token_types([type_of[id_] for id_ in range(tokenizer.vocab_size)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokenizer.end_of_text)
    writer.add_eos_token_id(max(tokenizer.stop_ids, key=lambda id_: id_ != tokenizer.end_of_text))  # another, if any
    if tokenizer.has_chat_tokens:
        writer.add_chat_template(JINJA)
    writer.add_add_bos_token(True)  # a text begins like a document, after an end_of_text

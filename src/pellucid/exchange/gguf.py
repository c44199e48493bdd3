"""Writes a decoder as a GGUF file, llama.cpp's format, with its weights, config and vocabulary.

    write_gguf(config, tensors, tokenizer, path, name="fables")

A GGUF file names an architecture: a model becomes a `qwen3`, `qwen2`, `llama` or `gpt2`, if necessary rewritten
(`rewrites.py`). The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError, Fix, InputOutputError, Option
from pellucid.exchange.architectures import to_hugging_face, used_biases
from pellucid.exchange.knobs import knobs_of, require_all_written
from pellucid.exchange.precision import Precision, rounded
from pellucid.exchange.rewrites import Tensors, as_llama
from pellucid.files import require_room, written_whole
from pellucid.model.build import head_width
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
KEYS = {"gpt2": GPT2, "llama": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA}
QWEN3_HEAD_WIDTH = 128  # transformers assumes this for a qwen3, and ignores the file's key_length
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
    file_types = {"fp32": "ALL_F32", "bf16": "MOSTLY_BF16", "fp16": "MOSTLY_F16"}
    writer.add_file_type(gguf.LlamaFileType[file_types[precision]])
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
        biases = used_biases(tensors)
        if biases - {"queries_keys_values"} or (biases and config.qk_norm):
            what = "the llama and the qwen3 of GGUF have no biases, "
            what += "and its qwen2 has only those of queries, keys and values"
            raise ConfigError("model.bias", what, EXPORT_TO_HF.after("train with false"))
        width = QWEN3_HEAD_WIDTH if config.qk_norm else None
        config, tensors = as_llama(config, tensors, width)
    hf_config, hf_tensors = to_hugging_face(config, tensors, vocab_size)
    architecture: str = hf_config["model_type"]
    if architecture not in KEYS:
        knob = "feed_forward" if config.feed_forward.type == "moe" else "attention"
        raise ConfigError(f"model.{knob}", f"no {architecture} is written as GGUF here", EXPORT_TO_HF)
    require_all_written(config, _written(architecture, config), f"the {architecture} of GGUF", EXPORT_TO_HF)
    if architecture == "qwen2" and head_width(config) * config.n_heads != config.d_model:
        what = f"the qwen2 of GGUF has heads of d_model / n_heads, and here they are {head_width(config)} wide"
        raise ConfigError("model.head_width", what, EXPORT_TO_HF.after("train without biases"))
    return architecture, config, hf_tensors


def loading_arguments(architecture: str, config: DecoderConfig) -> dict[str, Any]:
    """Arguments that `from_pretrained(..., gguf_file=...)` needs, as it does not read these values in the file."""
    d_ff = config.d_ff or 4 * config.d_model
    match architecture:
        case "qwen3":
            unread = {"head_dim": (head_width(config), QWEN3_HEAD_WIDTH)}
        case "gpt2":
            unread = {"n_positions": (config.context_length, 1024), "n_inner": (d_ff, 4 * config.d_model)}
        case _:
            unread = {}
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
    for knob, keys in KEYS[architecture].items():
        for key in keys:
            getattr(writer, f"add_{key}")(knobs[knob])


def _written(architecture: str, config: DecoderConfig) -> dict[str, Any]:
    """The knobs of the decoder that a program builds from the file: by its keys, tensors and architecture."""
    knobs, is_gpt2 = knobs_of(config), architecture == "gpt2"
    in_keys = {knob: knobs[knob] for knob in (*KEYS[architecture], "tied_embeddings")}
    built = DecoderConfig(
        **{knob: value for knob, value in in_keys.items() if "." not in knob},
        norm="layer_norm" if is_gpt2 else "rms_norm",
        activation="gelu_tanh" if is_gpt2 else "swiglu",
        qk_norm=architecture == "qwen3",
    )
    return knobs_of(built) | in_keys | ({"position": knobs["position"]} if is_gpt2 else {})  # a table in the tensors


def _named(gguf: Any, architecture: str, config: DecoderConfig, hf_tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with GGUF's names and layout."""
    (kind,) = (kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.n_layers)
    n_heads, n_kv_heads = config.n_heads, config.n_kv_heads or config.n_heads
    named = {}
    for hf_name, tensor in hf_tensors.items():
        module, _, parameter = hf_name.rpartition(".")
        if architecture == "gpt2" and ".h." in hf_name and tensor.ndim == 2:
            tensor = tensor.mT  # only transformers has GPT-2's matrices transposed
        if architecture == "llama" and module.endswith(("q_proj", "k_proj")):
            tensor = _neighbours(tensor, n_heads if module.endswith("q_proj") else n_kv_heads)
        named[f"{names.get_name(module)}.{parameter}"] = tensor
    return named


def _neighbours(matrix: Tensor, n_heads: int) -> Tensor:
    """A matrix reordered for llama.cpp, which rotates coordinates 2i and 2i + 1, not i and i + K/2."""
    halves = matrix.reshape(n_heads, 2, -1, matrix.size(1))
    return halves.transpose(1, 2).reshape(matrix.shape)


def _stored(gguf: Any, name: str, tensor: Tensor, precision: Precision) -> tuple[NDArray[Any], Any]:
    """A tensor as stored in the file, and its type: float32 for vectors and positions, as by llama.cpp's converter."""
    is_float32 = tensor.ndim == 1 or name.startswith("position_embd")
    small = rounded(name, tensor.detach().cpu(), "fp32" if is_float32 else precision)
    kind = gguf.GGMLQuantizationType[{torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[small.dtype]]
    return gguf.quantize(small.float().contiguous().numpy(), kind), kind


def _add_vocabulary(writer: Any, tokenizer: Tokenizer) -> None:
    """Add a vocabulary of byte-level byte-pair encoding that cuts text as GPT-2 does. ConfigError for any other."""
    saved = json.loads(tokenizer.to_json())
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in saved["model"]["merges"]]
    if not merges:  # the library cannot write an empty list, and programs need the list
        raise ConfigError(
            "tokenizer.type", "GGUF needs merges, and this vocabulary has none", EXPORT_TO_HF.after("train with bpe")
        )
    cuts, added_tokens = saved["pre_tokenizer"] or {}, saved["added_tokens"]
    as_gpt2 = cuts.get("type") == "ByteLevel" and cuts["use_regex"] and not cuts["add_prefix_space"]
    anywhere = all(not token[rule] for token in added_tokens for rule in ("single_word", "lstrip", "rstrip"))
    if not (as_gpt2 and anywhere) or saved["normalizer"] is not None or saved["model"].get("ignore_merges"):
        what = "it cuts text into words in another way than GPT-2, the only one that is written as GGUF here"
        raise ConfigError("tokenizer", what, EXPORT_TO_HF)
    token_of = {id_: token for token, id_ in saved["model"]["vocab"].items()}
    type_of = dict.fromkeys(token_of, NORMAL)
    for added in added_tokens:
        token_of[added["id"]] = added["content"]
        type_of[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token_of[id_] for id_ in range(tokenizer.vocab_size)])
    writer.add_token_types([type_of[id_] for id_ in range(tokenizer.vocab_size)])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokenizer.end_of_text)
    writer.add_eos_token_id(max(tokenizer.stop_ids, key=lambda id_: id_ != tokenizer.end_of_text))  # another, if any
    if tokenizer.has_chat_tokens:
        writer.add_chat_template(JINJA)
    writer.add_add_bos_token(True)  # a text begins like a document, after an end_of_text

"""Exports a run as a folder for other programs: transformers, llama.cpp and its relatives, or PEFT (`peft.py`).

    DIR/   model.safetensors  config.json  generation_config.json  tokenizer.json  tokenizer_config.json  README.md
    DIR/   model.gguf  README.md
    DIR/   adapter_model.safetensors  adapter_config.json  README.md

The folder is written atomically, as a checkpoint is.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from typing_extensions import assert_never

from pellucid.checkpoint.run_directory import run_of
from pellucid.checkpoint.step_directory import Tensors
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError
from pellucid.exchange.architectures import class_for, to_hugging_face
from pellucid.exchange.folders import new_folder, require_empty, write_folder
from pellucid.exchange.gguf import loading_arguments, write_gguf
from pellucid.exchange.imports import ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE
from pellucid.exchange.model_card import (
    HUGGING_FACE,
    HUGGING_FACE_CHAT,
    Exported,
    Loading,
    adapter_loading,
    gguf_loading,
    model_card,
)
from pellucid.exchange.peft import exported_adapter
from pellucid.exchange.precision import Precision, rounded
from pellucid.exchange.rewrites import as_llama
from pellucid.exchange.tokenizer_files import cuts_as, generation_settings, tokenizer_files
from pellucid.generation.single_token import own_part
from pellucid.model.decoder import Decoder
from pellucid.trained import TrainedModel, find_checkpoint, trained_model

Format = Literal["hf", "gguf", "peft"]
Card = Callable[[Exported, Loading], str]  # README.md


def export_run(
    run: Path,
    directory: Path,
    *,
    to: Format = "hf",
    which: str = "best",
    precision: Precision = "fp32",
    base: str | None = None,
    rewrite: bool = True,
) -> None:
    """Write the checkpoint that RUN and best|latest|STEP name into a new folder.

    base: for PEFT, the transformers folder of the adapter's base. rewrite: if transformers has no class for the model,
    write an equal one of another shape (`rewrites.py`), whose heads may be wider; otherwise refuse it. Raises
    ConfigError, naming the knob, for a model that the format does not support, and for a folder that is not empty;
    CheckpointError for a damaged run, InputOutputError for disk errors. Then nothing is left behind.
    """
    directory = Path(os.path.abspath(directory))
    require_empty(directory)
    if to == "peft" and base is None:
        what = "missing: an adapter is of use only beside its base"
        raise ConfigError(BASE, what, "name the folder of transformers that holds the base")
    if to != "peft" and base is not None:
        raise ConfigError(BASE, f"{to} holds the whole model, not an adapter", "leave it out")
    checkpoint, step_directory = find_checkpoint(run, which)  # read only once: training may delete it
    trained = trained_model(checkpoint, step_directory)
    card = partial(model_card, trained, checkpoint.state, run_of(step_directory))
    if not isinstance(trained.config.model, DecoderConfig):
        what = f"{trained.config.model.type} has no equal in other programs"
        raise ConfigError("model.type", what, "export a run of model.type decoder")
    assert isinstance(trained.model, Decoder)
    if own := own_part(trained.model):
        raise ConfigError("model", f"{own} has no name in other programs", "export a model without it")
    match to:
        case "hf":
            _write_hugging_face(trained, trained.config.model, directory, precision, card, rewrite)
        case "gguf":
            _write_gguf(trained, trained.config.model, directory, precision, card)
        case "peft":
            assert base is not None
            adapter = exported_adapter(trained.config, checkpoint, step_directory, base)
            _write_adapter(trained, adapter, directory, precision, card)
        case _:
            assert_never(to)


def _write_hugging_face(
    trained: TrainedModel, config: DecoderConfig, directory: Path, precision: Precision, card: Card, rewrite: bool
) -> None:
    any_tokenizer = cuts_as(trained.tokenizer) != "qwen2"
    config, tensors = _with_class(config, model_tensors(trained.model), any_tokenizer, rewrite)
    tensors = {name: rounded(name, tensor, precision) for name, tensor in tensors.items()}
    vocab_size = trained.tokenizer.vocab_size
    hf_config, hf_tensors = to_hugging_face(config, tensors, vocab_size, any_tokenizer=any_tokenizer)
    settings = generation_settings(trained.tokenizer, config.context_length)
    hf_config |= {name: settings[name] for name in ("bos_token_id", "eos_token_id")}
    exported = Exported(hf_config["architectures"][0], config, sum(tensor.numel() for tensor in hf_tensors.values()))
    loading = HUGGING_FACE_CHAT if trained.tokenizer.has_chat_tokens else HUGGING_FACE
    texts = {
        "config.json": json.dumps(hf_config, indent=2) + "\n",
        "generation_config.json": json.dumps(settings, indent=2) + "\n",
        "README.md": card(exported, loading),
        **tokenizer_files(trained.tokenizer, config.context_length),
    }
    write_folder(directory, texts, "model.safetensors", hf_tensors)


def _write_adapter(
    trained: TrainedModel, adapter: tuple[dict[str, Any], Tensors], directory: Path, precision: Precision, card: Card
) -> None:
    values, tensors = adapter
    n_parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    assert isinstance(trained.config.model, DecoderConfig)
    exported = Exported(f"an adapter of rank {values['r']}", trained.config.model, n_parameters)
    loading = adapter_loading(values["base_model_name_or_path"])
    texts = {ADAPTER_CONFIG: json.dumps(values, indent=2) + "\n", "README.md": card(exported, loading)}
    rounded_tensors = {name: rounded(name, tensor, precision) for name, tensor in tensors.items()}
    write_folder(directory, texts, ADAPTER_WEIGHTS, rounded_tensors)


def _write_gguf(
    trained: TrainedModel, config: DecoderConfig, directory: Path, precision: Precision, card: Card
) -> None:
    name, tensors = trained.config.name, model_tensors(trained.model)
    with new_folder(directory, 0) as draft:  # `write_gguf` checks the free space
        file = draft / "model.gguf"
        exported = Exported(*write_gguf(config, tensors, trained.tokenizer, file, name=name, precision=precision))
        arguments = loading_arguments(exported.name, exported.config)
        loading = gguf_loading(arguments, has_experts=exported.config.experts is not None)
        (draft / "README.md").write_text(card(exported, loading), encoding="utf-8", newline="\n")


def _with_class(
    config: DecoderConfig, tensors: Tensors, any_tokenizer: bool, rewrite: bool = True
) -> tuple[DecoderConfig, Tensors]:
    """The decoder, or an equal one, that some class computes. Raises ConfigError, naming the knob, if there is none."""
    try:
        class_for(config, tensors, any_tokenizer=any_tokenizer)
    except ConfigError as refusal:
        if not rewrite:
            raise
        try:
            config, tensors = as_llama(config, tensors)
            class_for(config, tensors, any_tokenizer=any_tokenizer)
        except ConfigError:
            raise refusal from None
    return config, tensors

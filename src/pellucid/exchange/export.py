"""Exports a run as a folder for other programs: transformers, or llama.cpp and its relatives.

    DIR/   model.safetensors  config.json  generation_config.json  tokenizer.json  tokenizer_config.json  README.md
    DIR/   model.gguf  README.md

The folder is written atomically, as a checkpoint is.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import safetensors.torch
from typing_extensions import assert_never

from pellucid.checkpoint.run_directory import run_of
from pellucid.checkpoint.step_directory import Tensors
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError
from pellucid.exchange.architectures import class_for, to_hugging_face
from pellucid.exchange.folders import new_folder, require_empty
from pellucid.exchange.gguf import loading_arguments, write_gguf
from pellucid.exchange.model_card import HUGGING_FACE, HUGGING_FACE_CHAT, Exported, Loading, gguf_loading, model_card
from pellucid.exchange.precision import Precision, rounded
from pellucid.exchange.rewrites import as_llama
from pellucid.exchange.tokenizer_files import cuts_as, generation_settings, tokenizer_files
from pellucid.generation.single_token import own_part
from pellucid.model.decoder import Decoder
from pellucid.trained import TrainedModel, find_checkpoint, trained_model

Format = Literal["hf", "gguf"]
Card = Callable[[Exported, Loading], str]  # README.md


def export_run(
    run: Path, directory: Path, *, to: Format = "hf", which: str = "best", precision: Precision = "fp32"
) -> None:
    """Write the checkpoint that RUN and best|latest|STEP name into a new folder.

    Raises ConfigError, naming the knob, for a model that the format does not support, and for a folder that is not
    empty; CheckpointError for a damaged run, InputOutputError for disk errors. Then nothing is left behind.
    """
    directory = Path(os.path.abspath(directory))
    require_empty(directory)
    trained, card = _read(run, which)
    if not isinstance(trained.config.model, DecoderConfig):
        what = f"{trained.config.model.type} has no equal in other programs"
        raise ConfigError("model.type", what, "export a run of model.type decoder")
    assert isinstance(trained.model, Decoder)
    if own := own_part(trained.model):
        raise ConfigError("model", f"{own} has no name in other programs", "export a model without it")
    match to:
        case "hf":
            _write_hugging_face(trained, trained.config.model, directory, precision, card)
        case "gguf":
            _write_gguf(trained, trained.config.model, directory, precision, card)
        case _:
            assert_never(to)


def _read(run: Path, which: str) -> tuple[TrainedModel, Card]:
    """The model and a function for its card, from a checkpoint that is read only once: training may delete it."""
    checkpoint, step_directory = find_checkpoint(run, which)
    trained = trained_model(checkpoint, step_directory)
    return trained, partial(model_card, trained, checkpoint.state, run_of(step_directory))


def _write_hugging_face(
    trained: TrainedModel, config: DecoderConfig, directory: Path, precision: Precision, card: Card
) -> None:
    any_tokenizer = cuts_as(trained.tokenizer) != "qwen2"
    config, tensors = _with_class(config, model_tensors(trained.model), any_tokenizer)
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
    hf_tensors = {name: tensor.contiguous() for name, tensor in hf_tensors.items()}
    n_bytes = sum(tensor.nbytes for tensor in hf_tensors.values()) + sum(map(len, texts.values()))
    with new_folder(directory, n_bytes) as draft:
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        weights = draft / "model.safetensors"
        safetensors.torch.save_file(hf_tensors, weights, {"format": "pt"})
        weights.chmod((draft / "config.json").stat().st_mode)  # the library makes it unreadable for others


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


def _with_class(config: DecoderConfig, tensors: Tensors, any_tokenizer: bool) -> tuple[DecoderConfig, Tensors]:
    """The decoder, or an equal one, that some class computes. Raises ConfigError, naming the knob, if there is none."""
    try:
        class_for(config, tensors, any_tokenizer=any_tokenizer)
    except ConfigError as refusal:
        try:
            config, tensors = as_llama(config, tensors)
            class_for(config, tensors, any_tokenizer=any_tokenizer)
        except ConfigError:
            raise refusal from None
    return config, tensors

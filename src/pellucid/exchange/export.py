"""From a run to a folder that other programs read: transformers, or llama.cpp and its relatives.

    DIR/   model.safetensors  config.json  generation_config.json  tokenizer.json  tokenizer_config.json  README.md

The folder is written under another name and renamed when it is whole, as a checkpoint is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from safetensors import SafetensorError
from typing_extensions import assert_never

from pellucid.checkpoint.build import TrainedModel, load_trained_model
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import Tensors, read_state
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError, InputOutputError
from pellucid.exchange.architectures import class_for, to_hugging_face
from pellucid.exchange.model_card import model_card
from pellucid.exchange.rewrites import as_llama
from pellucid.exchange.tokenizer_files import generation_settings, tokenizer_files
from pellucid.files import written_whole

Format = Literal["hf", "gguf"]
Precision = Literal["fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def export_run(
    run: Path, directory: Path, *, to: Format = "hf", which: str = "best", precision: Precision = "fp32"
) -> None:
    """Writes the checkpoint that RUN and best|latest|STEP name into a new folder.

    Raises ConfigError, naming the knob, for a model that others have no name for, and for a folder that is not empty;
    CheckpointError as all that read a run, InputOutputError if the disk refuses. Then nothing is left behind.
    """
    directory = Path(os.path.abspath(directory))
    require_empty(directory)
    step_directory = find_step_directory(run, which)
    trained = load_trained_model(step_directory)
    if not isinstance(trained.config.model, DecoderConfig):
        what = f"{trained.config.model.type} has no equal in other programs"
        raise ConfigError("model.type", what, "export a run of model.type decoder")
    card = model_card(trained, read_state(step_directory), step_directory.parent / "metrics.jsonl", to)
    match to:
        case "hf":
            _write_hugging_face(trained, trained.config.model, directory, precision, card)
        case "gguf":
            raise ConfigError("--to", "gguf is not there yet", "use --to hf")
        case _:
            assert_never(to)


def _write_hugging_face(
    trained: TrainedModel, config: DecoderConfig, directory: Path, precision: Precision, card: str
) -> None:
    config, tensors = _with_class(config, model_tensors(trained.model))
    tensors = {name: tensor.to(DTYPES[precision]) for name, tensor in tensors.items()}
    hf_config, hf_tensors = to_hugging_face(config, tensors, trained.tokenizer.vocab_size)
    settings = generation_settings(trained.tokenizer, config.context_length)
    hf_config |= {name: settings[name] for name in ("bos_token_id", "eos_token_id")}
    texts = {
        "config.json": json.dumps(hf_config, indent=2) + "\n",
        "generation_config.json": json.dumps(settings, indent=2) + "\n",
        "README.md": card,
        **tokenizer_files(trained.tokenizer, config.context_length),
    }
    with new_folder(directory, hf_tensors, texts) as draft:
        contiguous = {name: tensor.contiguous() for name, tensor in hf_tensors.items()}
        weights = draft / "model.safetensors"
        safetensors.torch.save_file(contiguous, weights, {"format": "pt"})
        weights.chmod((draft / "config.json").stat().st_mode)  # the library lets nobody else read it


def _with_class(config: DecoderConfig, tensors: Tensors) -> tuple[DecoderConfig, Tensors]:
    """The decoder, or an equal one that some class computes. Raises ConfigError, naming the knob, if there is none."""
    try:
        class_for(config)
    except ConfigError as refusal:
        try:
            config, tensors = as_llama(config, tensors)
            class_for(config)
        except ConfigError:
            raise refusal from None
    return config, tensors


def require_empty(directory: Path) -> None:
    """Raises ConfigError if there is something at this place already: nobody's files are lost."""
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
        raise ConfigError(str(directory), "is there already, and not empty", "name a new folder")


@contextmanager
def new_folder(directory: Path, tensors: Tensors, texts: dict[str, str]) -> Iterator[Path]:
    """A draft that holds the texts, to put the tensors in. InputOutputError if there is no room or the disk refuses."""
    try:
        needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        needed += sum(map(len, texts.values()))
        ancestor = next(each for each in directory.parents if each.exists())
        if (free := shutil.disk_usage(ancestor).free) < needed:
            raise OSError(f"it needs {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free")
        directory.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(directory) as draft:
            draft.mkdir()
            for name, text in texts.items():
                (draft / name).write_text(text, encoding="utf-8", newline="\n")
            yield draft
    except (OSError, SafetensorError) as error:
        what = f"not written: {getattr(error, 'strerror', None) or error}"
        raise InputOutputError(str(directory), what, "fix the disk or make room") from error

"""Imports a model folder of Hugging Face transformers as a run, with which every command works.

Nothing that could run code is read: weights are safetensors, the rest is JSON. Pickles are refused, never opened.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from pellucid.checkpoint.step_directory import Checkpoint, State, Tensors, load_tensors
from pellucid.config.load import run_config_to_yaml
from pellucid.config.model import DecoderConfig
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError, DataError, Fix, Option
from pellucid.exchange.architectures import from_hugging_face
from pellucid.exchange.folders import json_object, require_empty, write_run
from pellucid.exchange.tokenizer_files import imported_tokenizer
from pellucid.files import read_at_most, require_regular
from pellucid.version import __version__

_log = logging.getLogger(__name__)

CONFIG, WEIGHTS, INDEX, TOKENIZER = "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
SETTINGS, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
TOKENIZER_SETTINGS = (SETTINGS, "generation_config.json", CONFIG)
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
OF_ADAPTER = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
READ_FROM_THE_HUB = [CONFIG, "model*.safetensors", INDEX, TOKENIZER, *TOKENIZER_SETTINGS, TEMPLATE, *OF_ADAPTER]
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
BASE = Option("--base", "base")
MAX_JSON_BYTES = 1 << 26  # the largest tokenizer.json in use has a fifth of this
SAVE_AGAIN = "save it again where you trust it, by `save_pretrained` of transformers"


def import_run(source: str, run_dir: Path, base: str | None = None) -> None:
    """Import a folder, or a model on the hub, as a run at step 0, to write with, inspect and start from.

    base: the run of the base of a LoRA adapter, if that is what is imported. Raises CheckpointError for a model, and
    DataError for a tokenizer, that cannot be expressed here; ConfigError if RUN is not empty; InputOutputError for disk
    errors. Then nothing is left behind.
    """
    if base is not None:
        from pellucid.exchange.peft import import_adapter

        import_adapter(source, run_dir, base)
        return
    tokenizer_path = (run_dir / TOKENIZER).as_posix()
    run_dir, name = new_run(run_dir)
    folder = folder_of(source)
    if (folder / ADAPTER_CONFIG).exists() and not (folder / CONFIG).exists():
        fix = Fix("import its base, and name that run with {}", BASE)
        raise CheckpointError(source, "holds an adapter, and no model", fix)
    _, config, tensors, vocab_size = model_in(folder, source)
    texts = {TOKENIZER: text_of(folder / TOKENIZER, SAVE_AGAIN)}
    texts |= {file: text_of(folder / file, SAVE_AGAIN) for file in TOKENIZER_SETTINGS if (folder / file).exists()}
    tokenizer = imported_tokenizer(texts, vocab_size, source)
    write_run(run_dir, first_checkpoint(tensors, run_config(name, config, tokenizer_path), tokenizer.to_json()))
    has_template = (folder / TEMPLATE).exists() or "chat_template" in json.loads(texts.get(SETTINGS, "{}"))
    if has_template and not tokenizer.has_chat_tokens:
        _log.warning("%s: its chat template is not used; to chat with it, fine-tune it on conversations", source)


def new_run(run_dir: Path) -> tuple[Path, str]:
    """The absolute path of a folder that is still empty, and the name of the run in it. ConfigError for others."""
    run_dir = Path(os.path.abspath(run_dir))
    require_empty(run_dir)
    pattern = next(each.pattern for each in RunConfig.model_fields["name"].metadata if hasattr(each, "pattern"))
    if not re.fullmatch(pattern, run_dir.name):
        fix = "use letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise ConfigError(str(run_dir), f"{run_dir.name!r} is no name of a run", fix)
    return run_dir, run_dir.name


def model_in(folder: Path, where: str) -> tuple[dict[str, Any], DecoderConfig, dict[str, Tensor], int]:
    """The config.json of a folder, and the model in it as `from_hugging_face` reads it. Raises CheckpointError."""
    text = text_of(folder / CONFIG, "name the folder of a model, with config.json")
    hf_config = json_object(text, CheckpointError, f"{where}/{CONFIG}", SAVE_AGAIN)
    return hf_config, *from_hugging_face(hf_config, weights_of(folder, where), where)


def run_config(name: str, model: DecoderConfig, tokenizer_path: str, **more: Any) -> RunConfig:
    """The config of the imported run, with settings for fine-tuning a run that starts from it."""
    return RunConfig.model_validate(
        {
            "name": name,
            "corpus": {"type": "none"},
            "tokenizer": {"type": "file", "path": tokenizer_path},
            "model": model.model_dump(mode="json"),
            "optimizer": {"type": "adamw", "lr": 3e-5},
            "schedule": {"type": "cosine", "warmup_steps": 100},
            "train": {"steps": 1000, "batch_size": 1, "gradient_accumulation_steps": 8},
            **more,
        }
    )


def first_checkpoint(
    tensors: Tensors, config: RunConfig, tokenizer_json: str, base_sha256: str | None = None
) -> Checkpoint:
    """The checkpoint of an imported run, at step 0. base_sha256: of the weights that an adapter needs."""
    state = State(
        step=0,
        tokens=0,
        elapsed_seconds=0.0,
        val_loss=None,
        best_loss=None,
        unreported=None,
        grad_scaler={},
        data_fingerprint="none",
        base_sha256=base_sha256,
        pellucid_version=__version__,
        torch_version=torch.__version__,
        device="cpu",
        dtype="torch.float32",
        threads=torch.get_num_threads(),
    )
    generators = {"cpu": torch.Generator().get_state()}
    return Checkpoint(tensors, {}, generators, state, run_config_to_yaml(config), tokenizer_json)


def folder_of(source: str, fix: str | None = None) -> Path:
    """The folder, or the one in which the hub's client stores the model of that name. CheckpointError for neither."""
    if os.path.lexists(source) or not HUB_ID.fullmatch(source):
        if not Path(source).is_dir():
            raise CheckpointError(source, "no such folder", fix or "name the folder of a model, or a name on the hub")
        return Path(source)
    from huggingface_hub import snapshot_download

    from pellucid.corpora import hub

    answers = hub.answers()  # if not, what was downloaded before may do
    try:
        return Path(snapshot_download(source, allow_patterns=READ_FROM_THE_HUB, local_files_only=not answers))
    except Exception as error:  # the client raises errors of several libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0] if answers else "it does not answer"
        what = f"no such folder here, and the hub does not give it ({reason})"
        raise CheckpointError(source, what, fix or "check the name, and that the hub can be reached") from None


def weights_of(folder: Path, where: str, file: str = WEIGHTS) -> dict[str, Tensor]:
    """All tensors of a file, or of the files that an index names."""
    if (folder / INDEX).exists() and not (folder / file).exists():
        index = json_object(text_of(folder / INDEX, SAVE_AGAIN), CheckpointError, f"{where}/{INDEX}", SAVE_AGAIN)
        weight_map = index.get("weight_map")
        names = sorted(set(map(str, weight_map.values()))) if isinstance(weight_map, Mapping) else []
        if not names or any(Path(name).name != name for name in names):
            raise CheckpointError(f"{where}/{INDEX}", "damaged: it names no files beside it", SAVE_AGAIN)
    elif (folder / file).exists():
        names = [file]
    elif pickles := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        what = f"its weights are a pickle, {pickles[0]}, which may run code when it is opened"
        raise CheckpointError(where, what, f"{SAVE_AGAIN}, which writes {file}")
    else:
        raise CheckpointError(where, f"no {file} here", "name the folder of a model saved as safetensors")
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            tensors.update(load_tensors(folder / name))
        except FileNotFoundError:
            raise CheckpointError(f"{where}/{name}", "missing", "download the model again") from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
            raise CheckpointError(f"{where}/{name}", f"damaged ({error})", "download the model again") from None
    return tensors


def text_of(file: Path, fix: str) -> str:
    """The text of a file. CheckpointError if it is missing or too large; DataError for tokenizer.json."""
    kind = DataError if file.name == TOKENIZER else CheckpointError
    try:
        require_regular(file)
        return read_at_most(file, MAX_JSON_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise kind(str(file.parent), f"no {file.name} here", fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise kind(str(file), f"cannot be read ({getattr(error, 'strerror', None) or error})", fix) from None

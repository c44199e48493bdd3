"""Imports a model folder of Hugging Face transformers as a run, with which every command works.

Nothing that could run code is read: weights are safetensors, the rest is JSON. Pickles are refused, never opened.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from pellucid.checkpoint.step_directory import Checkpoint, State, load_tensors
from pellucid.config.load import run_config_to_yaml
from pellucid.config.model import DecoderConfig
from pellucid.config.run import RunConfig
from pellucid.errors import CheckpointError, ConfigError, DataError
from pellucid.exchange.architectures import from_hugging_face
from pellucid.exchange.folders import json_object, require_empty, write_run
from pellucid.exchange.tokenizer_files import imported_tokenizer
from pellucid.files import read_at_most, require_regular
from pellucid.version import __version__

_log = logging.getLogger(__name__)

CONFIG, WEIGHTS, INDEX, TOKENIZER = "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
SETTINGS, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
TOKENIZER_SETTINGS = (SETTINGS, "generation_config.json", CONFIG)
READ_FROM_THE_HUB = [CONFIG, "model*.safetensors", INDEX, TOKENIZER, *TOKENIZER_SETTINGS, TEMPLATE]
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
MAX_JSON_BYTES = 1 << 26  # the largest tokenizer.json in use has a fifth of this
SAVE_AGAIN = "save it again where you trust it, by `save_pretrained` of transformers"


def import_run(source: str, run_dir: Path) -> None:
    """Import a folder, or a model on the hub, as a run at step 0, to write with, inspect and start from.

    Raises CheckpointError for a model, and DataError for a tokenizer, that cannot be expressed here; ConfigError if
    RUN is not empty; InputOutputError for disk errors. Then nothing is left behind.
    """
    tokenizer_path = (run_dir / TOKENIZER).as_posix()
    run_dir = Path(os.path.abspath(run_dir))
    require_empty(run_dir)
    name = _run_name(run_dir)
    folder, where = _folder_of(source), source
    text = _text(folder / CONFIG, "name the folder of a model, with config.json")
    hf_config = json_object(text, CheckpointError, f"{where}/{CONFIG}", SAVE_AGAIN)
    config, tensors, vocab_size = from_hugging_face(hf_config, _weights(folder, where), where)
    texts = {TOKENIZER: _text(folder / TOKENIZER, SAVE_AGAIN)}
    texts |= {file: _text(folder / file, SAVE_AGAIN) for file in TOKENIZER_SETTINGS if (folder / file).exists()}
    tokenizer = imported_tokenizer(texts, vocab_size, where)
    config_yaml = run_config_to_yaml(_run_config(name, config, tokenizer_path))
    generators = {"cpu": torch.Generator().get_state()}
    write_run(run_dir, Checkpoint(tensors, {}, generators, _state(), config_yaml, tokenizer.to_json()))
    has_template = (folder / TEMPLATE).exists() or "chat_template" in json.loads(texts.get(SETTINGS, "{}"))
    if has_template and not tokenizer.has_chat_tokens:
        _log.warning("%s: its chat template is not used; to chat with it, fine-tune it on conversations", source)


def _run_name(run_dir: Path) -> str:
    pattern = next(each.pattern for each in RunConfig.model_fields["name"].metadata if hasattr(each, "pattern"))
    if not re.fullmatch(pattern, run_dir.name):
        fix = "use letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise ConfigError(str(run_dir), f"{run_dir.name!r} is no name of a run", fix)
    return run_dir.name


def _run_config(name: str, model: DecoderConfig, tokenizer_path: str) -> RunConfig:
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
        }
    )


def _state() -> State:
    return State(
        step=0,
        tokens=0,
        elapsed_seconds=0.0,
        val_loss=None,
        best_loss=None,
        unreported=None,
        grad_scaler={},
        data_fingerprint="none",
        pellucid_version=__version__,
        torch_version=torch.__version__,
        device="cpu",
        dtype="torch.float32",
        threads=torch.get_num_threads(),
    )


def _folder_of(source: str) -> Path:
    """The folder, or the one in which the hub's client stores the model of that name."""
    if os.path.lexists(source) or not HUB_ID.fullmatch(source):
        if not Path(source).is_dir():
            raise CheckpointError(source, "no such folder", "name the folder of a model, or a name on the hub")
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=READ_FROM_THE_HUB))
    except Exception as error:  # the client raises errors of several libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = f"no such folder here, and the hub does not give it ({reason})"
        raise CheckpointError(source, what, "check the name, and that the hub can be reached") from None


def _weights(folder: Path, where: str) -> dict[str, Tensor]:
    """All tensors of a file, or of the files that an index names."""
    if (folder / INDEX).exists() and not (folder / WEIGHTS).exists():
        index = json_object(_text(folder / INDEX, SAVE_AGAIN), CheckpointError, f"{where}/{INDEX}", SAVE_AGAIN)
        weight_map = index.get("weight_map")
        names = sorted(set(map(str, weight_map.values()))) if isinstance(weight_map, Mapping) else []
        if not names or any(Path(name).name != name for name in names):
            raise CheckpointError(f"{where}/{INDEX}", "damaged: it names no files beside it", SAVE_AGAIN)
    elif (folder / WEIGHTS).exists():
        names = [WEIGHTS]
    elif pickles := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        what = f"its weights are a pickle, {pickles[0]}, which may run code when it is opened"
        raise CheckpointError(where, what, f"{SAVE_AGAIN}, which writes {WEIGHTS}")
    else:
        raise CheckpointError(where, f"no {WEIGHTS} here", "name the folder of a model saved as safetensors")
    tensors: dict[str, Tensor] = {}
    for name in names:
        try:
            tensors.update(load_tensors(folder / name))
        except FileNotFoundError:
            raise CheckpointError(f"{where}/{name}", "missing", "download the model again") from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
            raise CheckpointError(f"{where}/{name}", f"damaged ({error})", "download the model again") from None
    return tensors


def _text(file: Path, fix: str) -> str:
    """The text of a file. CheckpointError if it is missing or too large; DataError for tokenizer.json."""
    kind = DataError if file.name == TOKENIZER else CheckpointError
    try:
        require_regular(file)
        return read_at_most(file, MAX_JSON_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise kind(str(file.parent), f"no {file.name} here", fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise kind(str(file), f"cannot be read ({getattr(error, 'strerror', None) or error})", fix) from None

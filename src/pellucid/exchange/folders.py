"""Creates a new folder atomically, such as that of a run: nothing is left if that fails. And reads what one holds."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from pellucid.checkpoint.step_directory import Checkpoint, Tensors, write_checkpoint
from pellucid.errors import ConfigError, InputOutputError, PellucidError
from pellucid.files import require_room, written_whole


def require_empty(directory: Path) -> None:
    """Raise ConfigError if the path exists and is not an empty folder, so that no files are lost."""
    if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
        raise ConfigError(str(directory), "is there already, and not empty", "name a new folder")


@contextmanager
def new_folder(directory: Path, n_bytes: int) -> Iterator[Path]:
    """A draft folder, to fill with about `n_bytes`. InputOutputError if there is no room for them, or a disk error."""
    created = [parent for parent in directory.parents if not parent.exists()]
    try:
        require_room(directory.parents[len(created)], n_bytes)
        directory.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(directory) as draft:
            draft.mkdir()
            yield draft
    except BaseException as error:
        for parent in created:
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, (OSError, SafetensorError, InputOutputError)):
            reason = error.what if isinstance(error, InputOutputError) else getattr(error, "strerror", None) or error
            fix = "name another folder, or make room"
            raise InputOutputError(str(directory), f"not written: {reason}", fix) from error
        raise


def write_folder(directory: Path, texts: Mapping[str, str], weights: str, tensors: Tensors) -> None:
    """Write a new folder with these texts, and the tensors in the file `weights`. Raises as `new_folder` does."""
    n_bytes = sum(tensor.nbytes for tensor in tensors.values()) + sum(map(len, texts.values()))
    with new_folder(directory, n_bytes) as draft:
        for name, text in texts.items():
            (draft / name).write_text(text, encoding="utf-8", newline="\n")
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(contiguous, draft / weights, {"format": "pt"})
        (draft / weights).chmod((draft / "README.md").stat().st_mode)  # the library makes it unreadable for others


def write_run(directory: Path, checkpoint: Checkpoint) -> None:
    """Write a new run that has this checkpoint alone. Raises as `new_folder` does."""
    n_bytes = sum(tensor.nbytes for tensor in checkpoint.model.values()) + 2 * len(checkpoint.tokenizer_json)
    with new_folder(directory, n_bytes) as draft:
        write_checkpoint(draft, checkpoint)
        (draft / "config.yaml").write_text(checkpoint.config_yaml, encoding="utf-8", newline="\n")
        (draft / "tokenizer.json").write_text(checkpoint.tokenizer_json, encoding="utf-8", newline="\n")


def json_object(text: str, kind: type[PellucidError], where: str, fix: str) -> dict[str, Any]:
    """The object that a file holds as JSON; an error of this kind if it holds none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise kind(where, "damaged: no JSON object", fix)
    return values

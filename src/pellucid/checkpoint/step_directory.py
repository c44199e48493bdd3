"""One checkpoint: write it so that it is whole or absent, and believe it only after every byte is checked.

    step-00000500/   model.safetensors  optimizer.safetensors  rng.safetensors  state.json  config.yaml  tokenizer.json
                     manifest.json: size and SHA-256 of each of them, and of itself

The order of writing is what makes it safe: files and their fsync, the manifest last, then one rename, which is
atomic. A reader meets either the complete folder under its final name or none. Nothing here can run code: weights are
safetensors, the rest is text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from pellucid.errors import CheckpointError, InputOutputError

FORMAT_VERSION = 1
TENSOR_FILES = ("model.safetensors", "optimizer.safetensors", "rng.safetensors")
TEXT_FILES = ("state.json", "config.yaml", "tokenizer.json")
MANIFEST = "manifest.json"

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """All that one step directory holds.

    `model`, `optimizer` and `rng` map names to tensors; `state` is the object in state.json (step, losses, versions).
    """

    model: Tensors
    optimizer: Tensors
    rng: Tensors
    state: dict[str, Any]
    config_yaml: str
    tokenizer_json: str


def step_name(step: int) -> str:
    """The folder's name. Eight digits keep the alphabetical order equal to the order of steps."""
    return f"step-{step:08d}"


def write_checkpoint(run_dir: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Writes `run_dir/step-…`, replacing one of the same step, and returns its path.

    Raises InputOutputError if the disk is full or refuses; then nothing is left behind and older steps are untouched.
    """
    final, temporary = run_dir / step_name(step), run_dir / f".tmp-{step_name(step)}"
    try:
        _write_files(temporary, step, checkpoint)
        discard(final)
        os.rename(temporary, final)
        _fsync(run_dir)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        what = f"checkpoint not saved: {getattr(error, 'strerror', None) or error}"
        raise InputOutputError(str(final), what, "make room, then go on with --resume") from error
    return final


def read_checkpoint(directory: Path) -> Checkpoint:
    """Checks every file of a step directory against its manifest, then reads it.

    Raises CheckpointError, naming the file, if anything is missing, added, changed or unreadable.
    """
    _verify(directory)
    try:
        model, optimizer, rng = (safetensors.torch.load_file(directory / name) for name in TENSOR_FILES)
        state_json, config_yaml, tokenizer_json = (
            (directory / name).read_bytes().decode("utf-8") for name in TEXT_FILES
        )
        state = json.loads(state_json)
    except (OSError, ValueError, SafetensorError) as error:
        raise _damaged(directory, str(error)) from error
    return Checkpoint(model, optimizer, rng, state, config_yaml, tokenizer_json)


def discard(directory: Path) -> None:
    """Deletes a step directory. It is renamed first, so that an interrupted deletion leaves no half checkpoint."""
    if directory.exists():
        trash = directory.with_name(f".trash-{directory.name}")
        shutil.rmtree(trash, ignore_errors=True)
        os.rename(directory, trash)
        shutil.rmtree(trash, ignore_errors=True)


def _write_files(directory: Path, step: int, checkpoint: Checkpoint) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, tensors in zip(TENSOR_FILES, (checkpoint.model, checkpoint.optimizer, checkpoint.rng), strict=True):
        on_cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        safetensors.torch.save_file(on_cpu, directory / name)
    state_json = json.dumps(checkpoint.state, indent=2, allow_nan=False) + "\n"
    texts = (state_json, checkpoint.config_yaml, checkpoint.tokenizer_json)
    for name, text in zip(TEXT_FILES, texts, strict=True):
        (directory / name).write_bytes(text.encode("utf-8"))
    files = {}
    for name in (*TENSOR_FILES, *TEXT_FILES):
        _fsync(directory / name)
        files[name] = {"bytes": (directory / name).stat().st_size, "sha256": _sha256(directory / name)}
    (directory / MANIFEST).write_bytes(_manifest_bytes({"format": FORMAT_VERSION, "step": step, "files": files}))
    _fsync(directory / MANIFEST)
    _fsync(directory)


def _verify(directory: Path) -> None:
    if not directory.is_dir():
        raise CheckpointError(str(directory), "no such checkpoint", "name an existing step")
    try:
        raw = (directory / MANIFEST).read_bytes()
        manifest = json.loads(raw)
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
        content = {key: manifest[key] for key in ("format", "step", "files")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(directory, f"{MANIFEST} is missing or unreadable") from error
    if raw != _manifest_bytes(content):
        raise _damaged(directory, f"{MANIFEST} was changed")
    if content["format"] != FORMAT_VERSION:
        what = f"format {content['format']} is unknown to this version (it reads {FORMAT_VERSION})"
        raise CheckpointError(str(directory), what, "use the version of Pellucid that wrote it")
    expected = {*TENSOR_FILES, *TEXT_FILES}
    present = {entry.name for entry in os.scandir(directory)} - {MANIFEST}
    if set(files) != expected or present != expected:
        odd = ", ".join(sorted((present | set(files)) ^ expected)) or ", ".join(sorted(present ^ set(files)))
        raise _damaged(directory, f"files missing or added: {odd}")
    for name, (size, sha256) in files.items():
        path = directory / name
        if path.is_symlink() or path.stat().st_size != size or _sha256(path) != sha256:
            raise _damaged(directory, f"{name} is not the file that was saved")


def _manifest_bytes(content: dict[str, Any]) -> bytes:
    """The only bytes that a manifest with this content can have; it ends in a hash of itself."""
    sha256 = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**content, "sha256": sha256}, sort_keys=True, indent=2) + "\n").encode()


def _damaged(directory: Path, what: str) -> CheckpointError:
    return CheckpointError(str(directory), f"damaged: {what}", "use another checkpoint of the run")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fsync(path: Path) -> None:
    """Waits until the disk has the file or, for a folder, the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

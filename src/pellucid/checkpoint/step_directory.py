"""One checkpoint: written completely or not at all, and used only after every byte is checked.

    step-00000500/   model.safetensors  optimizer.safetensors  rng.safetensors  state.json  config.yaml  tokenizer.json
                     manifest.json: size and SHA-256 of each of them

A snapshot is the same without optimizer and rng (`snapshots.py`).

All files are on disk before the folder gets its final name by an atomic rename: so a reader finds a complete folder or
none. Nothing here can run code: weights are safetensors, the rest is text.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor

from pellucid import failpoints
from pellucid.config.base import Section
from pellucid.config.shipped import DEMO
from pellucid.errors import RESUME, CheckpointError, Fix, InputOutputError
from pellucid.files import require_regular, require_room, sha256, written_whole

FORMAT_VERSION = 2
MODEL_FILE = "model.safetensors"
TENSOR_FILES = (MODEL_FILE, "optimizer.safetensors", "rng.safetensors")
TEXT_FILES = ("state.json", "config.yaml", "tokenizer.json")
FILES = (*TENSOR_FILES, *TEXT_FILES)
SNAPSHOT_FILES = (MODEL_FILE, *TEXT_FILES)
MANIFEST = "manifest.json"
METRICS, SAMPLES = "metrics.jsonl", "samples.md"  # the logs of the run, beside its step directories
STEP_NAME = re.compile(r"step-(\d{8}|[1-9]\d{8,17})")
SNAPSHOTS = "snapshots"  # the folder of weights alone (`snapshots.py`) in a run's folder
USE_ANOTHER = "use another checkpoint of the run"
# The largest manifest and table of tensors that are read; GPT-3's would take a fifth of it.
MAX_HEADER_BYTES = 1 << 20

Tensors = Mapping[str, Tensor]


class Unreported(Section):
    """The result of the last update, if the run was stopped before its evaluation. An infinite norm is None."""

    loss: float
    gradient_norm: float | None
    learning_rate: float
    tokens: int
    seconds: float
    figures: dict[str, Any] = Field(default_factory=dict)


class SeenLog(Section):
    """The length and hash of a log when a checkpoint was saved."""

    bytes: int
    sha256: str


class State(Section):
    """state.json: the progress of the run, and the environment it ran in.

    val_loss, best_loss: nats per token, of this step and of the best one so far.   evaluations_since_best: those
    without a new best.   base_sha256: of the model.safetensors that the run started from, if it still needs it, under
    an adapter or as a reference.   reward_sha256: of the reward model, if one judges the answers.   logs: the run's,
    by name.   products: the way in which each kind of float32 product is computed on a CPU, which a resumed run
    repeats.   The last six: a resumed run is identical bit for bit if they are equal. Old checkpoints lack products and
    logs; the oldest also the version of Pellucid, and the number of processes, which was one.
    """

    step: int
    tokens: int
    elapsed_seconds: float
    val_loss: float | None
    best_loss: float | None
    best_step: int | None = None
    evaluations_since_best: int = 0
    unreported: Unreported | None
    grad_scaler: dict[str, int | float]
    data_fingerprint: str
    base_sha256: str | None = None
    reward_sha256: str | None = None
    logs: dict[str, SeenLog] = Field(default_factory=dict)
    products: dict[str, str] = Field(default_factory=dict)
    pellucid_version: str | None = None
    torch_version: str
    device: str
    dtype: Literal["torch.float32", "torch.bfloat16", "torch.float16"]
    threads: int
    processes: int = 1


@dataclass(frozen=True)
class Checkpoint:
    """Everything in one step directory; `model`, `optimizer` and `rng` map names to tensors.

    A snapshot holds the weights alone, and training cannot continue from it.
    """

    model: Tensors
    optimizer: Tensors
    rng: Tensors
    state: State
    config_yaml: str
    tokenizer_json: str
    is_snapshot: bool = False


def step_name(step: int) -> str:
    """The name of a step's folder. With eight digits, alphabetical order is the order of steps."""
    return f"step-{step:08d}"


def write_checkpoint(run_dir: Path, checkpoint: Checkpoint) -> Path:
    """Write `run_dir/step-…`, replacing one of the same step, and return its path.

    Raises InputOutputError if the disk is full or fails; then nothing is left behind and older steps are untouched.
    """
    final = run_dir / step_name(checkpoint.state.step)
    try:
        tensors = [*checkpoint.model.values(), *checkpoint.optimizer.values(), *checkpoint.rng.values()]
        require_room(run_dir, sum(tensor.nbytes for tensor in tensors) + len(checkpoint.tokenizer_json))
        with written_whole(final) as draft:
            draft.mkdir()
            lines = []
            for name, content in _contents(checkpoint):
                _write(draft / name, content)
                lines.append(manifest_line(name, len(content), hashlib.sha256(content).hexdigest()))
            _write(draft / MANIFEST, manifest(lines))
            failpoints.reached("rename checkpoint")
    except (OSError, SafetensorError) as error:
        what = f"checkpoint not saved: {getattr(error, 'strerror', None) or error}"
        fix = Fix("fix the disk or make room, then continue with {}", RESUME)
        raise InputOutputError(str(final), what, fix) from error
    failpoints.reached("saved")
    return final


def read_checkpoint(directory: Path) -> Checkpoint:
    """Check every file of a step directory against its manifest, then read it.

    float16 weights become float32; the shipped demo is stored in float16 to keep it small.
    Raises CheckpointError, naming the file, if anything is missing, added, changed or unreadable.
    """
    state = read_state(directory)
    try:
        tensors = {name: load_tensors(directory / name) for name in TENSOR_FILES if (directory / name).exists()}
        model, optimizer, rng = (tensors.get(name, {}) for name in TENSOR_FILES)
        config_yaml, tokenizer_json = ((directory / name).read_bytes().decode("utf-8") for name in TEXT_FILES[1:])
    except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
        raise _damaged(directory, f"unreadable ({error})") from error
    model = {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in model.items()}
    return Checkpoint(model, optimizer, rng, state, config_yaml, tokenizer_json, is_snapshot=len(tensors) == 1)


def read_state(directory: Path) -> State:
    """Check every file as `read_checkpoint` does, but read only state.json.

    The manifest is not parsed, so it cannot mislead: it is computed again from the files, and must be the same text.
    """
    try:
        kinds = {entry.name: entry.is_file(follow_symlinks=False) for entry in os.scandir(directory)}
        files = FILES if kinds.keys() & {*FILES} - {*SNAPSHOT_FILES} else SNAPSHOT_FILES
        if odd := sorted(kinds.keys() ^ {*files, MANIFEST}) or sorted(name for name in kinds if not kinds[name]):
            raise _damaged(directory, f"missing, added or not a regular file: {', '.join(odd)}")
        with (directory / MANIFEST).open("rb") as file:
            saved = file.read(MAX_HEADER_BYTES)
        paths = [directory / name for name in files]
        lines = [manifest_line(path.name, path.stat().st_size, sha256(path)) for path in paths]
        if wrong := [path.name for path, line in zip(paths, lines, strict=True) if line.encode() not in saved]:
            raise _damaged(directory, f"{wrong[0]} is not what {MANIFEST} says")
        if saved != manifest(lines):
            raise _damaged(directory, f"{MANIFEST} was changed, or is of another version")
        state = State.model_validate_json((directory / "state.json").read_bytes())
    except FileNotFoundError:
        raise CheckpointError(str(directory), "no such checkpoint", "name an existing step") from None
    except OSError as error:
        raise _damaged(directory, f"unreadable ({error.strerror})") from error
    except ValueError as error:
        raise _damaged(directory, "state.json is not as this version writes it") from error
    if STEP_NAME.fullmatch(directory.name) and directory.name != step_name(state.step):
        raise _damaged(directory, f"it holds step {state.step}")
    return state


def _contents(checkpoint: Checkpoint) -> Iterator[tuple[str, bytes]]:
    """Each file's name and bytes, one file at a time, so that memory never holds a second copy of everything."""
    for name, tensors in zip(TENSOR_FILES, (checkpoint.model, checkpoint.optimizer, checkpoint.rng), strict=True):
        if name == MODEL_FILE or not checkpoint.is_snapshot:
            on_cpu = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
            yield name, safetensors.torch.save(on_cpu)
    state_json = checkpoint.state.model_dump_json(indent=2) + "\n"
    for name, text in zip(TEXT_FILES, (state_json, checkpoint.config_yaml, checkpoint.tokenizer_json), strict=True):
        yield name, text.encode("utf-8")


def _write(path: Path, content: bytes) -> None:
    failpoints.reached(f"write {path.name}")
    path.write_bytes(content)


def load_tensors(path: Path) -> Tensors:
    """Load a safetensors file if its header is small and names each tensor once; the library checks the rest."""
    require_regular(path)
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
        if n_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"{path.name} claims a header of {n_bytes:,} bytes")
        pairs = json.loads(file.read(n_bytes), object_pairs_hook=lambda pairs: pairs)
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"{path.name} names a tensor twice")
    is_utf8 = str(path).encode("utf-8", "ignore").decode() == str(path)  # the library opens no other path
    return safetensors.torch.load_file(path) if is_utf8 else safetensors.torch.load(path.read_bytes())


def manifest(lines: list[str]) -> bytes:
    """The only valid manifest of these files."""
    return (f'{{"format": {FORMAT_VERSION}, "files": {{\n' + ",\n".join(sorted(lines)) + "\n}}\n").encode()


def manifest_line(name: str, n_bytes: int, digest: str) -> str:
    return f'  "{name}": {{"bytes": {n_bytes}, "sha256": "{digest}"}}'


def _damaged(directory: Path, what: str) -> CheckpointError:
    fix = "install Pellucid again" if directory.parent == DEMO else USE_ANOTHER
    return CheckpointError(str(directory), f"damaged: {' '.join(what.split())}", fix)

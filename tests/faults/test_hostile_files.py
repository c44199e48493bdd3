"""F13, F14: files made by an attacker, under a manifest that fits them, run no code and take no memory."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import strikes
from damage import header_of, safetensors, sign
from pellucid.checkpoint.step_directory import TENSOR_FILES, TEXT_FILES, read_checkpoint
from pellucid.errors import CheckpointError
from processes import command_line
from reference_run import Trace
from tiny_run import assert_one_error_line

MEGABYTE = 1 << 20
ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(fault_place: Path, reference: Trace, tmp_path: Path) -> Path:
    shutil.copytree(fault_place / "undisturbed/step-00000030", tmp_path / "run/step-00000030")
    return tmp_path / "run"


@pytest.fixture
def checkpoint(run: Path) -> Path:
    return run / "step-00000030"


class Malicious:
    """Unpickling it creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_f13_a_pickle_under_any_name_is_never_executed(run, checkpoint: Path, tmp_path: Path, pellucid, tally):
    """In place of a file, or beside the weights."""
    poison = pickle.dumps(Malicious(tmp_path / "executed"))
    pickle.loads(poison)
    assert (tmp_path / "executed").is_dir()  # it does what it threatens
    (tmp_path / "executed").rmdir()
    for name in (*TENSOR_FILES, *TEXT_FILES, "model.pt", "training_state.pkl"):
        before = (checkpoint / name).read_bytes() if (checkpoint / name).exists() else None
        (checkpoint / name).write_bytes(poison)
        sign(checkpoint)
        for command in ("verify", "generate"):
            with tally.attempt(f"{command} with a pickle as {name}"):
                assert_one_error_line(pellucid(command, run), 4)
                assert not (tmp_path / "executed").exists()
        (checkpoint / name).unlink()
        if before is not None:
            (checkpoint / name).write_bytes(before)


def float32(*shape: int, at: tuple[int, int]) -> dict[str, object]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": list(at)}


def twice(name: str) -> bytes:
    entry = f'"{name}": {json.dumps(float32(2, at=(0, 8)))}'
    return f"{{{entry}, {entry}}}".encode()


HEADERS: dict[str, bytes] = {
    "a length of 2^63": (1 << 63).to_bytes(8, "little") + b"{}",
    "a length of 2^64 - 1": b"\xff" * 8 + b"{}",
    "a length beyond the end": (1000).to_bytes(8, "little") + b"{}",
    "a length one too large": safetensors({"a": float32(2, at=(0, 8))}, b"12345678")[:-1],
    "no length": b"1234",
    "nothing": b"",
    "no JSON": safetensors(b"\x80\x04nonsense"),
    "a list": safetensors(b"[1, 2]"),
    "a number": safetensors(b"7"),
    "null": safetensors(b"null"),
    "deep nesting": safetensors(b"[" * 100_000),
    "deep nesting of objects": safetensors(b'{"a":' * 100_000),
    "a header of 2 MB": safetensors(b"{" + b" " * 2 * MEGABYTE + b"}"),
    "a header of 90 MB": safetensors(b"{" + b" " * 90 * MEGABYTE + b"}"),
    "overlap": safetensors({"a": float32(2, at=(0, 8)), "b": float32(2, at=(4, 12))}, b"0" * 12),
    "the same bytes twice": safetensors({"a": float32(2, at=(0, 8)), "b": float32(2, at=(0, 8))}, b"0" * 8),
    "a hole": safetensors({"a": float32(2, at=(0, 8)), "b": float32(2, at=(12, 20))}, b"0" * 20),
    "a hole at the start": safetensors({"a": float32(2, at=(4, 12))}, b"0" * 12),
    "bytes after the end": safetensors({"a": float32(2, at=(0, 8))}, b"0" * 12),
    "duplicate keys": safetensors(twice("a"), b"0" * 8),
    "offsets the wrong way round": safetensors({"a": float32(2, at=(8, 0))}, b"0" * 8),
    "a negative offset": safetensors({"a": float32(2, at=(-8, 0))}, b"0" * 8),
    "an enormous offset": safetensors({"a": float32(2, at=(0, 1 << 62))}, b"0" * 8),
    "an enormous shape": safetensors({"a": float32(1 << 62, 1 << 62, at=(0, 8))}, b"0" * 8),
    "a shape that wraps around": safetensors({"a": float32(1 << 63, 2, at=(0, 0))}),
    "a negative shape": safetensors({"a": float32(-2, at=(0, 8))}, b"0" * 8),
    "an unknown dtype": safetensors({"a": {"dtype": "X99", "shape": [2], "data_offsets": [0, 8]}}, b"0" * 8),
    "a dtype that PyTorch has not": safetensors(
        {"a": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, b"0" * 3
    ),
    "no dtype": safetensors({"a": {"shape": [2], "data_offsets": [0, 8]}}, b"0" * 8),
    "fractions in the shape": safetensors(b'{"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 8]}}', b"0" * 8),
    "half a surrogate pair": safetensors(
        b'{"\\ud800": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', b"0" * 8
    ),
}


@pytest.mark.parametrize("case", HEADERS)
def test_f14_a_hostile_header_is_an_error(checkpoint: Path, tally, soak, case):
    """In the short form in one of the files, all of which are read in one way."""
    for name in TENSOR_FILES if soak else [TENSOR_FILES[list(HEADERS).index(case) % 3]]:
        before = (checkpoint / name).read_bytes()
        with tally.attempt(f"{name}: {case}"):
            (checkpoint / name).write_bytes(HEADERS[case])
            sign(checkpoint)
            with pytest.raises(CheckpointError, match="damaged: "):
                read_checkpoint(checkpoint)
        (checkpoint / name).write_bytes(before)


@pytest.mark.parametrize("case", ["a header of 90 MB", "an enormous shape"])
def test_f14_memory_stays_below_200_megabytes_more(run: Path, checkpoint: Path, tmp_path: Path, case):
    """The process may take no more than that: it would end with exit code 8."""
    (checkpoint / "model.safetensors").write_bytes(HEADERS[case])
    sign(checkpoint)
    done = command_line(tmp_path, "verify", run, fault=partial(strikes.little_memory, 200 * MEGABYTE))
    assert_one_error_line(done, 4)
    assert "damaged: " in done.stdout


@pytest.mark.parametrize("name", ["state.json", "manifest.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"[" * 100_000, b'{"step": NaN}', b'{"a":' * 100_000, b"\xff\xfe", b"1" * 100_000, b"{}"],
    ids=lambda content: repr(content[:16]),
)
def test_f14_hostile_json_is_an_error(checkpoint: Path, name, content):
    (checkpoint / name).write_bytes(content)
    if name == "state.json":
        sign(checkpoint)
    with pytest.raises(CheckpointError, match="damaged: "):
        read_checkpoint(checkpoint)


def test_f14_a_large_manifest_is_not_read_to_its_end(run: Path, checkpoint: Path, tmp_path: Path):
    with (checkpoint / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)  # a sparse file, which takes no room
    done = command_line(tmp_path, "verify", run, fault=partial(strikes.little_memory, 200 * MEGABYTE))
    assert_one_error_line(done, 4)


def foreign_name(header):
    header["foreign"] = float32(0, at=(0, 0))


def lost_name(header):
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    assert header.pop(last)


def other_dtype(header):
    for entry in header.values():
        entry["dtype"] = {"F32": "I32", "U8": "I8"}.get(entry["dtype"], entry["dtype"])


def other_shape(header):
    for entry in header.values():
        entry["shape"] = [1, *entry["shape"]]


def eight_bits(header):
    """A type of which PyTorch cannot even tell whether a number is finite."""
    for entry in header.values():
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        entry.update(dtype="F8_E4M3", shape=[size])


@pytest.mark.parametrize("name", TENSOR_FILES)
@pytest.mark.parametrize("change", [eight_bits, foreign_name, lost_name, other_dtype, other_shape])
def test_f14_tensors_that_are_not_the_models_change_nothing(run: Path, checkpoint: Path, pellucid, name, change):
    """Names, dtypes and shapes are compared before anything is put into place."""
    header, data = header_of(checkpoint / name)
    change(header)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    (checkpoint / name).write_bytes(safetensors(header, data[:end]))
    sign(checkpoint)
    if (name, change) in [("rng.safetensors", foreign_name), ("optimizer.safetensors", lost_name)]:
        return  # the generator of a device that this machine has not; a moment that was never begun
    assert_one_error_line(pellucid("verify", run), 4)


@pytest.mark.parametrize("fill", [0, 255])
def test_f14_a_generator_state_that_is_none_is_an_error(run: Path, checkpoint: Path, pellucid, fill):
    header, data = header_of(checkpoint / "rng.safetensors")
    (checkpoint / "rng.safetensors").write_bytes(safetensors(header, bytes([fill]) * len(data)))
    sign(checkpoint)
    done = pellucid("verify", run)
    assert_one_error_line(done, 4)
    assert "generator cpu" in done.stdout


READERS_THAT_RUN_CODE = """\
import pickle
from pickle import loads
import dill
import joblib
import shelve
from torch import load
import torch, yaml, numpy as np
torch.load('model.pt')
yaml.load('a: 1', yaml.Loader)
yaml.unsafe_load('a: 1')
np.load('a.npy', allow_pickle=True)
"""


def lint(*options: str, source: str | None = None) -> subprocess.CompletedProcess[str]:
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--output-format", "concise"]
    return subprocess.run([*ruff, *options], input=source, cwd=ROOT, capture_output=True, text=True)


def test_f13_lint_lets_no_reader_that_can_run_code_into_src():
    found = lint("--stdin-filename", "src/pellucid/new.py", "-", source=READERS_THAT_RUN_CODE)
    lines = {int(line) for line in re.findall(r"^src/pellucid/new.py:(\d+):.*TID251", found.stdout, re.MULTILINE)}
    harmless = {7}
    assert lines == set(range(1, READERS_THAT_RUN_CODE.count("\n") + 1)) - harmless


def test_f13_src_passes_that_lint():
    found = lint("--ignore-noqa", "src")
    assert found.returncode == 0, found.stdout

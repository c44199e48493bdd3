"""Random damage to every file of a checkpoint, under a manifest that fits it: the reader answers or refuses."""

import json
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from damage import header_of, safetensors, sign
from pellucid.checkpoint.step_directory import MANIFEST, TENSOR_FILES, TEXT_FILES, read_checkpoint
from pellucid.checkpoint.training_state import load_training_state
from pellucid.errors import CheckpointError
from pellucid.trained import load_trained_model
from reference_run import Trace

SOAK_SECONDS = 300

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 24), st.binary(max_size=24)), min_size=1, max_size=4)


def edited(content: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Some bytes taken out and others put in, each at a share of the length."""
    for place, n_removed, inserted in edits:
        at = int(place * len(content))
        content = content[:at] + inserted + content[at + n_removed :]
    return content


@st.composite
def edited_header(draw: st.DrawFn, file: Path) -> bytes:
    """Tensors renamed, dropped, or with other dtypes, shapes and offsets."""
    header, data = header_of(file)
    for name in draw(st.lists(st.sampled_from(sorted(header)), min_size=1, max_size=3, unique=True)):
        entry = header.pop(name)
        key = draw(st.sampled_from(["dtype", "shape", "data_offsets", "name", "drop", "add"]))
        if key == "drop":
            continue
        if key == "add":
            header[draw(st.text(max_size=8))] = entry
        elif key == "name":
            name = draw(st.text(max_size=12))
        else:
            numbers = st.lists(st.integers(-1, 2**64) | st.sampled_from(entry["data_offsets"]), max_size=4)
            kinds = st.sampled_from(["F32", "F16", "BF16", "I64", "U8", "BOOL", "F64", "C64", "F8_E4M3", "X"])
            entry = {**entry, key: draw((kinds if key == "dtype" else numbers) | JSON)}
        header[name] = entry
    return safetensors(header, data)


@st.composite
def edited_state(draw: st.DrawFn, file: Path) -> bytes:
    state = json.loads(file.read_bytes())
    for key in draw(st.lists(st.sampled_from(sorted(state)), min_size=1, max_size=3, unique=True)):
        state[draw(st.sampled_from([key, key + "s"]))] = draw(JSON)
    return json.dumps(state).encode()


@pytest.fixture
def checkpoint(fault_place: Path, reference: Trace, tmp_path: Path) -> Path:
    return shutil.copytree(fault_place / "undisturbed/step-00000030", tmp_path / "copied")


def test_fuzz_checkpoint_reader(checkpoint: Path, tally, soak):
    whole = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    decoder = load_trained_model(checkpoint).model
    names = (*TENSOR_FILES, *TEXT_FILES, MANIFEST)
    damages = [st.tuples(st.just(name), st.builds(edited, st.just(whole[name]), EDITS)) for name in names]
    damages += [st.tuples(st.just(name), edited_header(checkpoint / name)) for name in TENSOR_FILES]
    damages += [st.tuples(st.just("state.json"), edited_state(checkpoint / "state.json"))]

    @settings(
        max_examples=2000 if soak else 100,
        derandomize=not soak,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @example(("state.json", b"{}"))
    @given(st.one_of(damages))
    def read(damage: tuple[str, bytes]) -> None:
        name, content = damage
        with tally.attempt(damage):
            (checkpoint / name).write_bytes(content)
            try:
                if name != MANIFEST:
                    sign(checkpoint)
                load_training_state(decoder, [], read_checkpoint(checkpoint), str(checkpoint))
            except CheckpointError as error:
                if not str(error).isprintable():
                    raise AssertionError("not one line") from error
            finally:
                (checkpoint / name).write_bytes(whole[name])
                (checkpoint / MANIFEST).write_bytes(whole[MANIFEST])

    end, round_ = time.monotonic() + SOAK_SECONDS, 0
    while True:
        seed(round_)(read)()
        round_ += 1
        if not soak or time.monotonic() > end:
            break
    assert tally.tries >= 100

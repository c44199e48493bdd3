"""A checkpoint is whole or it is refused."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from damage import sign
from pellucid import files
from pellucid.checkpoint import step_directory
from pellucid.checkpoint.step_directory import read_checkpoint, read_state, write_checkpoint
from pellucid.errors import CheckpointError, InputOutputError
from pellucid.runs.resume import other_environment
from tiny_checkpoint import TINY_CHECKPOINT, tiny_checkpoint, tiny_state


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, TINY_CHECKPOINT)


def test_what_is_written_is_read_back(saved: Path):
    read = read_checkpoint(saved)
    assert saved.name == "step-00000005"
    for wrote, got in [
        (TINY_CHECKPOINT.model, read.model),
        (TINY_CHECKPOINT.optimizer, read.optimizer),
        (TINY_CHECKPOINT.rng, read.rng),
    ]:
        assert wrote.keys() == got.keys()
        assert all(torch.equal(wrote[key], got[key]) for key in wrote)
    assert (read.state, read.config_yaml, read.tokenizer_json) == (
        TINY_CHECKPOINT.state,
        TINY_CHECKPOINT.config_yaml,
        TINY_CHECKPOINT.tokenizer_json,
    )


def test_a_step_directory_can_be_moved(saved: Path, tmp_path: Path):
    elsewhere = tmp_path / "another machine" / "copied"
    shutil.copytree(saved, elsewhere)
    assert torch.equal(read_checkpoint(elsewhere).model["weight"], TINY_CHECKPOINT.model["weight"])


def test_one_changed_byte_anywhere_is_detected(saved: Path):
    tried = 0
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        for position in range(0, len(whole), max(1, len(whole) // 60)):
            changed = bytearray(whole)
            changed[position] ^= 1 << (position % 8)
            file.write_bytes(changed)
            with pytest.raises(CheckpointError):
                read_checkpoint(saved)
            tried += 1
        file.write_bytes(whole)
    assert tried > 300
    read_checkpoint(saved)


def test_a_truncated_missing_or_added_file_is_detected(saved: Path):
    for file in sorted(saved.iterdir()):
        whole = file.read_bytes()
        for length in (0, 1, 7, 8, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(CheckpointError, match=r"damaged: "):
                read_checkpoint(saved)
        file.unlink()
        with pytest.raises(CheckpointError, match=r"damaged: "):
            read_checkpoint(saved)
        file.write_bytes(whole)
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"missing, added or not a regular file: notes.txt"):
        read_checkpoint(saved)


def test_a_link_in_place_of_a_file_is_refused(saved: Path, tmp_path: Path):
    shutil.move(saved / "state.json", tmp_path / "state.json")
    (saved / "state.json").symlink_to(tmp_path / "state.json")
    with pytest.raises(CheckpointError, match="not a regular file: state.json"):
        read_checkpoint(saved)


def test_a_manifest_of_another_format_says_so(saved: Path):
    manifest = (saved / "manifest.json").read_text()
    assert json.loads(manifest)["files"].keys() == {*step_directory.TENSOR_FILES, *step_directory.TEXT_FILES}
    (saved / "manifest.json").write_text(manifest.replace('"format": 2', '"format": 99'))
    with pytest.raises(CheckpointError, match="manifest.json was changed, or is of another version"):
        read_checkpoint(saved)


def test_a_folder_under_the_name_of_another_step_is_refused(saved: Path, tmp_path: Path):
    saved.rename(tmp_path / "step-00000009")
    with pytest.raises(CheckpointError, match="it holds step 5"):
        read_checkpoint(tmp_path / "step-00000009")


def test_a_save_that_fails_leaves_no_trace_and_spares_the_older_one(saved: Path, tmp_path: Path, monkeypatch):
    def disk_full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    monkeypatch.setattr(files, "fsync", disk_full)
    with pytest.raises(InputOutputError, match="checkpoint not saved: No space left on device"):
        write_checkpoint(tmp_path, tiny_checkpoint(step=6))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


def test_a_checkpoint_from_before_pellucid_told_its_version_is_read(tmp_path: Path):
    directory = write_checkpoint(tmp_path, TINY_CHECKPOINT)
    state = json.loads((directory / "state.json").read_text())
    del state["pellucid_version"]
    (directory / "state.json").write_text(json.dumps(state))
    sign(directory)
    assert read_checkpoint(directory).state == tiny_state(pellucid_version=None)
    assert other_environment({"pellucid_version": "9.9", "threads": 1}, read_checkpoint(directory)) is None


def test_a_number_format_in_which_nobody_trains_is_refused(tmp_path: Path):
    """`pellucid contest` counts the cost of training in this format: it looked for `torch.float99`."""
    directory = write_checkpoint(tmp_path, TINY_CHECKPOINT)
    state = json.loads((directory / "state.json").read_text())
    (directory / "state.json").write_text(json.dumps({**state, "dtype": "float99"}))
    sign(directory)
    with pytest.raises(CheckpointError, match="state.json is not as this version writes it"):
        read_state(directory)


@pytest.mark.skipif(sys.platform != "linux", reason="only here may a name be any bytes")
def test_a_folder_whose_name_is_not_utf8_is_read(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"r\xe9")
    folder.mkdir()
    directory = write_checkpoint(folder, tiny_checkpoint())
    assert read_checkpoint(directory).model.keys() == tiny_checkpoint().model.keys()

"""A checkpoint is whole or it is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pellucid.checkpoint import step_directory
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint, write_checkpoint
from pellucid.errors import CheckpointError, InputOutputError

CONTENT = Checkpoint(
    model={"weight": torch.arange(6.0).reshape(2, 3)},
    optimizer={"weight/exp_avg": torch.ones(2, 3), "weight/step": torch.tensor(5.0)},
    rng={"cpu": torch.get_rng_state()},
    state={"step": 5, "val_loss": 1.5, "data_fingerprint": "abc"},
    config_yaml="name: élan\n",
    tokenizer_json='{"model": "bpe"}',
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, 5, CONTENT)


def test_what_is_written_is_read_back(saved: Path):
    read = read_checkpoint(saved)
    assert saved.name == "step-00000005"
    for wrote, got in [
        (CONTENT.model, read.model),
        (CONTENT.optimizer, read.optimizer),
        (CONTENT.rng, read.rng),
    ]:
        assert wrote.keys() == got.keys()
        assert all(torch.equal(wrote[key], got[key]) for key in wrote)
    assert (read.state, read.config_yaml, read.tokenizer_json) == (
        CONTENT.state,
        CONTENT.config_yaml,
        CONTENT.tokenizer_json,
    )


def test_a_step_directory_can_be_moved(saved: Path, tmp_path: Path):
    elsewhere = tmp_path / "another machine" / "copied"
    shutil.copytree(saved, elsewhere)
    assert torch.equal(read_checkpoint(elsewhere).model["weight"], CONTENT.model["weight"])


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
    with pytest.raises(CheckpointError, match=r"files missing or added: notes.txt"):
        read_checkpoint(saved)


def test_a_link_in_place_of_a_file_is_refused(saved: Path, tmp_path: Path):
    shutil.move(saved / "state.json", tmp_path / "state.json")
    (saved / "state.json").symlink_to(tmp_path / "state.json")
    with pytest.raises(CheckpointError, match="state.json is not the file that was saved"):
        read_checkpoint(saved)


def test_a_manifest_of_another_format_says_so(saved: Path):
    manifest = json.loads((saved / "manifest.json").read_bytes())
    del manifest["sha256"]
    (saved / "manifest.json").write_bytes(step_directory._manifest_bytes({**manifest, "format": 99}))
    with pytest.raises(CheckpointError, match="format 99 is unknown to this version"):
        read_checkpoint(saved)


def test_a_save_that_fails_leaves_no_trace_and_spares_the_older_one(saved: Path, tmp_path: Path, monkeypatch):
    def disk_full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    monkeypatch.setattr(step_directory, "_fsync", disk_full)
    with pytest.raises(InputOutputError, match="checkpoint not saved: No space left on device"):
        write_checkpoint(tmp_path, 6, CONTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


def test_nothing_is_under_its_final_name_before_every_file_is_on_disk(tmp_path: Path, monkeypatch):
    events = []
    real_fsync, real_rename = step_directory._fsync, step_directory.os.rename

    def record_fsync(path: Path) -> None:
        events.append(("fsync", path.name))
        real_fsync(path)

    def record_rename(old: Path, new: Path) -> None:
        events.append(("rename", Path(new).name))
        real_rename(old, new)

    monkeypatch.setattr(step_directory, "_fsync", record_fsync)
    monkeypatch.setattr(step_directory.os, "rename", record_rename)
    write_checkpoint(tmp_path, 7, CONTENT)
    files = [*step_directory.TENSOR_FILES, *step_directory.TEXT_FILES]
    assert events == [
        *[("fsync", name) for name in files],
        ("fsync", "manifest.json"),
        ("fsync", ".tmp-step-00000007"),
        ("rename", "step-00000007"),
        ("fsync", tmp_path.name),
    ]


def test_numbers_that_json_has_not_are_refused_at_the_save(tmp_path: Path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_checkpoint(tmp_path, 1, replace(CONTENT, state={"val_loss": float("nan")}))

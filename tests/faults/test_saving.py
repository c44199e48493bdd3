"""F4, F24: the order in which a save reaches the disk, and what is kept."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from damage import flip
from pellucid.checkpoint.run_directory import keep_last_and_best, steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name, write_checkpoint
from pellucid.config.load import load_run_config
from pellucid.runs.train_run import train_run
from tiny_checkpoint import tiny_checkpoint


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """Every fsync and rename that the system is asked for: what, which name, and what the file held then."""
    calls: list[tuple[str, str, bytes]] = []
    real_fsync, real_replace, real_open = os.fsync, os.replace, os.open
    opened: dict[int, Path] = {}

    def recording_open(path, *rest, **named):
        descriptor = real_open(path, *rest, **named)
        opened[descriptor] = Path(path)
        return descriptor

    def recording_fsync(descriptor):
        path = opened[descriptor]
        calls.append(("fsync", path.name, path.read_bytes() if path.is_file() else b""))
        real_fsync(descriptor)

    def recording_replace(old, new):
        calls.append(("rename", Path(new).name, b""))
        real_replace(old, new)

    monkeypatch.setattr(os, "open", recording_open)
    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    return calls


def test_f4_nothing_is_under_its_final_name_before_all_of_it_is_on_disk(tmp_path: Path, disk):
    """File fsync < folder fsync < rename < parent fsync; and each file was complete at its fsync."""
    saved = write_checkpoint(tmp_path, tiny_checkpoint(step=7))
    assert [(what, name) for what, name, _ in disk] == [
        *[("fsync", name) for name in sorted(file.name for file in saved.iterdir())],
        ("fsync", ".tmp-step-00000007"),
        ("rename", "step-00000007"),
        ("fsync", tmp_path.name),
    ]
    at_fsync = {name: content for what, name, content in disk if what == "fsync"}
    assert {file.name: file.read_bytes() for file in saved.iterdir()}.items() <= at_fsync.items()


def test_f4_the_log_is_on_disk_before_the_checkpoint_that_goes_on_from_it(workplace: Path, disk):
    config = load_run_config(workplace / "tiny.yaml", ["train.steps=5"])
    train_run(config, workplace / "data", workplace / "run", resume=False, overwrite=False, note=lambda line: None)
    calls = [(what, name) for what, name, _ in disk]
    rename = calls.index(("rename", "step-00000005"))
    for log in ("metrics.jsonl", "samples.md"):
        assert ("fsync", log) in calls[:rename]
        assert disk[calls.index(("fsync", log))][2] == (workplace / "run" / log).read_bytes()


def test_f24_k_whole_ones_are_kept_beside_invalid_ones(tmp_path: Path, caplog):
    """The newest of all is damaged, one between is empty, and a file has a checkpoint's name."""
    losses = {10: 0.5, 20: 3.0, 30: 2.0, 40: 2.5, 50: 2.4, 60: 0.1, 70: 2.3}
    for step, loss in losses.items():
        write_checkpoint(tmp_path, tiny_checkpoint(step=step, val_loss=loss))
    flip(tmp_path / step_name(60) / "state.json", 20, 3)  # it would have been the best
    flip(tmp_path / step_name(70) / "model.safetensors", 40, 3)
    (tmp_path / step_name(65)).mkdir()
    keep_last_and_best(tmp_path, keep_last=2)
    assert steps_in(tmp_path) == [10, 40, 50]  # two whole ones, and the best whole one
    for step in (10, 40, 50):
        read_checkpoint(tmp_path / step_name(step))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


@pytest.mark.parametrize("fails", ["rename", "rmtree"])
def test_f24_a_delete_that_fails_is_a_warning_and_takes_no_whole_one(tmp_path: Path, monkeypatch, caplog, fails):
    for step in (10, 20, 30, 40):
        write_checkpoint(tmp_path, tiny_checkpoint(step=step, val_loss=1 / step))

    def refuse(path, *_rest, **_named):
        raise OSError(13, "Permission denied", str(path))

    monkeypatch.setattr(*((os, "rename", refuse) if fails == "rename" else (shutil, "rmtree", refuse)))
    keep_last_and_best(tmp_path, keep_last=2)
    for step in (30, 40):
        read_checkpoint(tmp_path / step_name(step))
    if fails == "rename":
        assert steps_in(tmp_path) == [10, 20, 30, 40]
    assert f"{tmp_path / step_name(10)}: not deleted: Permission denied" in caplog.messages
    monkeypatch.undo()
    keep_last_and_best(tmp_path, keep_last=2)
    assert steps_in(tmp_path) == [30, 40]


def test_f24_saving_goes_on_beside_damaged_checkpoints(workplace: Path):
    """A run with keep_last 3 whose two newest are spoilt ends with three whole ones."""
    config = load_run_config(workplace / "tiny.yaml", ["checkpoint.keep_last=3", "checkpoint.every_steps=2"])
    arguments = {"overwrite": False, "note": lambda line: None}
    run = workplace / "run"
    train_run(config, workplace / "data", run, resume=False, **arguments)
    for step in steps_in(run)[-2:]:
        flip(run / step_name(step) / "rng.safetensors", 900, 1)
    train_run(config, workplace / "data", run, resume=True, **arguments)
    assert steps_in(run) == [16, 18, 20]
    for step in (16, 18, 20):
        read_checkpoint(run / step_name(step))

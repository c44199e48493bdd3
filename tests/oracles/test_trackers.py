"""TensorBoard and Weights & Biases hold metrics.jsonl, row by row, also after a kill."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pellucid.training.metrics import read_rows
from pellucid.training.tracker_programs import numbers

pytest.importorskip("tensorboard")
pytest.importorskip("wandb")

FABLES = (
    *("corpus={type: fables, size: 40, validation_fraction: 0.2}", "tokenizer.vocab_size=400"),
    *("model.context_length=256", "evaluation.every_steps=10"),
)
TRACKED = ("train", "tiny.yaml", "trackers=[tensorboard, wandb]")
BLOCK, WHOLE, LAST = 1 << 15, 1, 4  # of LevelDB's log
KILLED_AT_12 = """
import os, signal
from pellucid.cli import main
from pellucid.training.trainer import Trainer
update = Trainer.update
Trainer.update = lambda self: update(self) if self.step < 12 else os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def run(workplace: Path, program: list[str], *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *program, *TRACKED, *arguments]
    return subprocess.run(command, cwd=workplace, env={**os.environ}, capture_output=True, text=True)


def scalars(run_dir: Path) -> dict[int, dict[str, float]]:
    """By step and name, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    shown: dict[int, dict[str, float]] = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert name not in shown.setdefault(event.step, {}), "a row is there twice"
            shown[event.step][name] = event.value
    return shown


def records(run_dir: Path) -> list:
    """The records of all offline runs in the folder, in the order in which they were written."""
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))
    return [Record.FromString(data) for file in files for data in leveldb_records(file.read_bytes())]


def leveldb_records(log: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB writes it: blocks of 32 KiB of chunks, of which one or more make a record.

    A chunk: checksum, 4 bytes; length, 2; kind, 1: whole, first, middle, last (LevelDB's doc/log_format.md). The file
    begins with 7 bytes of wandb's own.
    """
    assert log[:4] == b":W&B"
    place, data = 7, b""
    while place + 7 <= len(log):
        if BLOCK - place % BLOCK < 7:  # no room for the head of a chunk: zeros
            place += BLOCK - place % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", log, place + 4)
        data += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (WHOLE, LAST):
            yield data
            data = b""


def history(run_dir: Path) -> dict[int, dict[str, object]]:
    """By step and name; what was logged again counts."""
    shown: dict[int, dict[str, object]] = {}
    for record in records(run_dir):
        if record.WhichOneof("record_type") == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            shown.setdefault(record.history.step.num, {}).update(row)
    return shown


def assert_rows_are_shown(run_dir: Path) -> None:
    rows = read_rows(run_dir / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 21))
    events, logged = scalars(run_dir), history(run_dir)
    assert sorted(events) == [row["step"] for row in rows]
    for row in rows:
        assert events[row["step"]] == {name: np.float32(number) for name, number in numbers(row).items()}
        theirs = logged[row["step"]]
        assert {name: value for name, value in theirs.items() if not name.startswith(("_", "samples"))} == numbers(row)


def test_each_row_the_samples_the_figures_and_the_config_are_there(workplace: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    ended = run(workplace, ["-m", "pellucid"], *FABLES)
    assert ended.returncode == 0, ended.stderr
    run_dir = workplace / "checkpoints/tiny"
    assert_rows_are_shown(run_dir)
    assert "skills/recall/accuracy" in history(run_dir)[20]
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    assert [event.step for event in events.Tensors("samples/text_summary")] == [10, 20]
    (config,) = events.Tensors("config/text_summary")
    assert "    name: tiny" in config.tensor_proto.string_val[0].decode()
    assert set(events.Tags()["images"]) == {"loss", "skills"}
    (started,) = [record.run for record in records(run_dir) if record.WhichOneof("record_type") == "run"][:1]
    theirs = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert theirs["model"]["d_model"] == 16
    assert started.run_id == (run_dir / "wandb/run_id").read_text()
    assert history(run_dir)[20]["samples/nrows"] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_after_a_kill_and_a_resume_each_row_is_there_once(workplace: Path):
    killed = run(workplace, ["-c", KILLED_AT_12])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run_dir = workplace / "checkpoints/tiny"
    assert max(scalars(run_dir)) == 12, "the rows after the last checkpoint are shown too"
    ended = run(workplace, ["-m", "pellucid"], "--resume")
    assert ended.returncode == 0, ended.stderr
    assert_rows_are_shown(run_dir)
    ids = {record.run.run_id for record in records(run_dir) if record.WhichOneof("record_type") == "run"}
    assert ids == {(run_dir / "wandb/run_id").read_text()}


def test_a_folder_that_cannot_be_written_is_one_warning_for_each(workplace: Path):
    short = ("train.steps=4", "checkpoint.every_steps=2")
    assert run(workplace, ["-m", "pellucid"], "trackers=[]", *short).returncode == 0
    run_dir = workplace / "checkpoints/tiny"
    shutil.rmtree(run_dir / "step-00000004")
    for name in ("tensorboard", "wandb"):
        (run_dir / name).write_text("a file where a folder should be")
    ended = run(workplace, ["-m", "pellucid"], *short, "--resume")
    assert ended.returncode == 0, ended.stderr
    for name in ("tensorboard", "wandb"):
        assert ended.stderr.count(f"warning: trackers: {name} failed") == 1

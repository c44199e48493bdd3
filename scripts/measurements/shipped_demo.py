"""Puts the trained demo into the package, so that `pellucid generate demo` works as soon as Pellucid is installed.

Remakes: shipped_demo
Takes: 2 minutes
Needs: checkpoints/fables (`make demo`)

Writes src/pellucid/demo/: the newest checkpoint, as a snapshot with 16-bit weights, its training curve, and what each
of its parts is for. Measures what rounding to 16 bits costs.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from results import Entry

import pellucid
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import MODEL_FILE, read_checkpoint, write_checkpoint
from pellucid.config.shipped import DEMO
from pellucid.files import sha256
from pellucid.training.metrics import read_rows
from pellucid.web.microscope import TABLES_FILE, Microscope
from pellucid.web.schemas import N_FABLES

EVERY = 50  # updates between two rows of the curve


def measure(run: Path) -> Iterator[Entry]:
    checkpoint = read_checkpoint(find_step_directory(run, "latest"))
    weights = {name: tensor.half() for name, tensor in checkpoint.model.items()}
    state = checkpoint.state.model_copy(update={"logs": {}, "unreported": None})
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    snapshot = replace(checkpoint, model=weights, optimizer={}, rng={}, state=state, is_snapshot=True)
    shipped = write_checkpoint(DEMO, snapshot)
    shutil.copy(shipped / "config.yaml", DEMO)  # without it, the page would not see a run here
    measure_parts(shipped.name)
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["step"] % EVERY == 0 or "val_loss" in row]
    (DEMO / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    before, after = (pellucid.load(folder).evaluate() for folder in (run, "demo"))
    figures = {
        "steps": state.step,
        "megabytes": sum(file.stat().st_size for file in DEMO.rglob("*") if file.is_file()) / 1e6,
        "excess (% of the floor)": 100 * after.excess_nats_per_token / after.floor_nats_per_token,
        "cost of 16 bits (nats per token)": after.loss - before.loss,
        "sha256": sha256(shipped / MODEL_FILE),
    }
    yield Entry("shipped_demo", figures, ["fables"])


def measure_parts(step: str) -> None:
    """Says what each part is for, so that the page knows it at once. Measured in a copy, whose folder keeps it."""
    copy = shutil.copytree(DEMO, Path(DEMO.name))
    Microscope([copy]).knock_out(f"{DEMO.name}@{int(step.removeprefix('step-'))}", N_FABLES)
    shutil.copy(copy / TABLES_FILE, DEMO)

"""Puts the trained demo into the package, so that `pellucid generate demo` works as soon as Pellucid is installed.

    make demo
    python scripts/ship_demo.py checkpoints/fables --record

Writes src/pellucid/demo/: the newest checkpoint, as a snapshot with 16-bit weights, its training curve, and what each
of its parts is for.
--record notes the commit, the hash, and what rounding to 16 bits costs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from results import parser, print_table, record

import pellucid
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import MODEL_FILE, read_checkpoint, write_checkpoint
from pellucid.config.shipped import DEMO
from pellucid.files import sha256
from pellucid.training.metrics import read_rows
from pellucid.web.microscope import KEPT_TABLES, Microscope
from pellucid.web.schemas import N_FABLES

EVERY = 50  # updates between two rows of the curve


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("run", type=Path)
    options = arguments.parse_args()
    trained = find_step_directory(options.run, "latest")
    checkpoint = read_checkpoint(trained)
    weights = {name: tensor.half() for name, tensor in checkpoint.model.items()}
    state = checkpoint.state.model_copy(update={"logs": {}, "unreported": None})
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    shipped = write_checkpoint(
        DEMO, replace(checkpoint, model=weights, optimizer={}, rng={}, state=state, is_snapshot=True)
    )
    shutil.copy(shipped / "config.yaml", DEMO)  # without it, the page would not see a run here
    measure_parts(shipped.name)
    rows = [row for row in read_rows(options.run / "metrics.jsonl") if row["step"] % EVERY == 0 or "val_loss" in row]
    (DEMO / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    before, after = (pellucid.load(folder).evaluate() for folder in (options.run, "demo"))
    figures = {
        "steps": state.step,
        "megabytes": sum(file.stat().st_size for file in DEMO.rglob("*") if file.is_file()) / 1e6,
        "excess (% of the floor)": 100 * after.excess_nats_per_token / after.floor_nats_per_token,
        "cost of 16 bits (nats per token)": after.loss - before.loss,
        "sha256": sha256(shipped / MODEL_FILE),
    }
    print_table("shipped demo", {"demo": figures})
    if options.record:
        record("shipped_demo", figures, ["fables"])


def measure_parts(step: str) -> None:
    """Says what each part is for, so that the page knows it at once. Measured in a copy, whose folder keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(DEMO, Path(folder) / DEMO.name)
        Microscope([copy]).knock_out(f"{DEMO.name}@{int(step.removeprefix('step-'))}", N_FABLES)
        shutil.copy(copy / KEPT_TABLES, DEMO)


if __name__ == "__main__":
    main()

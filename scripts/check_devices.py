"""How well `devices_on_paper.py` predicts training in several processes: the demo's updates with 1, 2 and 4 of them,
as far as there are cores.

    python scripts/check_devices.py

Each process has one thread. The machine is measured by as many processes at once as will train, as they share its
memory; so is the speed of an all-reduce between them. Nothing is sent while they compute. About three minutes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from devices_on_paper import Cluster, Layout, all_reduce_bytes, step_of, update_on_one_device
from results import parser, print_table, record
from torch.multiprocessing.spawn import spawn

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.cost.machine import Machine, measure_machine
from pellucid.recipe import prepare_data
from pellucid.runtime.precision import resolve_precision
from pellucid.training.metrics import read_rows

PROCESSES = [n for n in (1, 2, 4) if n <= torch.get_num_threads()]
WARM_UP_UPDATES, ALL_REDUCES = 10, 30
CONFIG = Path(__file__).parent.parent / "configs" / "fables.yaml"
FEW_FABLES = ["corpus={type: fables, size: 3000}"]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--updates", type=int, default=60)
    options = arguments.parse_args()

    config = load_run_config(CONFIG, FEW_FABLES)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        vocab_size = prepare_data(config, Path(folder) / "data").tokenizer.vocab_size
        for n in PROCESSES:
            measured = train(n, options.updates, Path(folder))
            predicted, communication = predict(config, vocab_size, n, Path(folder))
            figures[f"{n} process{'es' if n > 1 else ''}"] = {
                "measured (tokens/s)": measured,
                "predicted (tokens/s)": predicted,
                "predicted to measured": predicted / measured,
                "measured efficiency (%)": 100 * measured,
                "predicted efficiency (%)": 100 * predicted,
                "communication, predicted (%)": 100 * communication,
            }
    alone = figures["1 process"].copy()
    for n, row in zip(PROCESSES, figures.values(), strict=True):
        for kind in ("measured", "predicted"):
            row[f"{kind} efficiency (%)"] /= n * alone[f"{kind} (tokens/s)"]
    print_table("processes", figures)
    if options.record:
        record("processes", figures, ["fables/shape"])


def train(n: int, updates: int, folder: Path) -> float:
    """Tokens per second of `pellucid train`, the median of its updates."""
    run_dir = folder / f"run-{n}"
    changes = [*FEW_FABLES, f"train.processes={n}", f"train.steps={updates}", "train.log_every_steps=1"]
    command = [sys.executable, "-m", "pellucid", "train", str(CONFIG), *changes, "--run-dir", str(run_dir)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)
    rows = read_rows(run_dir / "metrics.jsonl")[WARM_UP_UPDATES:]
    return statistics.median(row["tokens_per_second"] for row in rows)


def predict(config: RunConfig, vocab_size: int, n: int, folder: Path) -> tuple[float, float]:
    """Tokens per second with ddp, and the share of the time that is spent sending."""
    precision = resolve_precision(config.train.device, config.train.precision)
    weight_bytes = update_on_one_device(config, vocab_size, precision, Machine("any", 1, 1, 1)).weight_bytes
    found = folder / f"machine-{n}.json"
    spawn(measure, (n, weight_bytes, config.train.precision, folder / f"meet-{n}", found), nprocs=n)
    machine, bytes_per_second = json.loads(found.read_text(encoding="utf-8"))
    update = update_on_one_device(config, vocab_size, precision, Machine(**machine))
    cluster = Cluster(n, n, bytes_per_second, bytes_per_second, float("inf"), sends_while_computing=False)
    step = step_of(update, cluster, Layout(n))
    return config.tokens_per_step / step.seconds, step.sending_seconds / step.seconds


def measure(rank: int, n: int, n_bytes: int, precision_name: str, meeting_place: Path, found: Path) -> None:
    """One of n processes that measure the machine at the same time. The first one writes down what it found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting_place.resolve().as_uri(), rank=rank, world_size=n)
    precision = resolve_precision("cpu", precision_name)
    gradients, seconds = torch.ones(n_bytes // 4), []
    for _ in range(ALL_REDUCES):
        started = time.perf_counter()
        dist.all_reduce(gradients)
        seconds.append(time.perf_counter() - started)
    dist.barrier()
    machine = measure_machine(precision.device, precision.dtype)
    dist.barrier()
    if rank == 0:
        bytes_per_second = max(1.0, all_reduce_bytes(n, n_bytes)) / statistics.median(seconds)
        found.write_text(json.dumps([asdict(machine), bytes_per_second]), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

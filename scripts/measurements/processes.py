"""How well devices.py predicts training in several processes: the demo's updates with 1, 2 and 4 of them, measured.

Remakes: processes
Takes: 3 minutes
Needs: nothing

Each process has one thread. The machine is measured by as many processes at once as will train, as they share its
memory; so is the speed of an all-reduce between them. Nothing is sent while they compute.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from measurements.devices import Cluster, Layout, all_reduce_bytes, step_of, update_on_one_device
from results import Entry
from runs import FABLES, at_once, pellucid
from timing import seconds_of

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.cost.machine import Machine, measure_machine
from pellucid.recipe import prepare_data
from pellucid.runtime.precision import resolve_precision
from pellucid.training.metrics import read_rows

PROCESSES = [n for n in (1, 2, 4) if n <= torch.get_num_threads()]
WARM_UP_UPDATES, ALL_REDUCES = 10, 30
FEW_FABLES = ["corpus={type: fables, size: 3000}"]


def measure(*, updates: int = 60) -> Iterator[Entry]:
    config = load_run_config(FABLES, FEW_FABLES)
    vocab_size = prepare_data(config, Path("data")).tokenizer.vocab_size
    measured = {n: train(n, updates) for n in PROCESSES}
    predicted = {n: predict(config, vocab_size, n) for n in PROCESSES}
    yield Entry("processes", as_table(measured, predicted), ["fables/shape"])


def as_table(measured: dict[int, float], predicted: dict[int, tuple[float, float]]) -> dict[str, dict[str, float]]:
    """From tokens per second with so many processes, and the predicted share of the time that they send."""

    def efficiency(rates: dict[int, float], n: int) -> float:
        return 100 * rates[n] / (n * rates[1])

    rates = {n: rate for n, (rate, _) in predicted.items()}
    return {
        f"{n} process{'es' if n > 1 else ''}": {
            "measured (tokens/s)": measured[n],
            "predicted (tokens/s)": rates[n],
            "predicted to measured": rates[n] / measured[n],
            "measured efficiency (%)": efficiency(measured, n),
            "predicted efficiency (%)": efficiency(rates, n),
            "communication, predicted (%)": 100 * predicted[n][1],
        }
        for n in measured
    }


def train(n: int, updates: int) -> float:
    """Tokens per second of `pellucid train`, the median of its updates."""
    changes = [*FEW_FABLES, f"train.processes={n}", f"train.steps={updates}", "train.log_every_steps=1"]
    pellucid("train", FABLES, *changes, "--run-dir", f"run-{n}", environment={"OMP_NUM_THREADS": "1"})
    rows = read_rows(Path(f"run-{n}/metrics.jsonl"))[WARM_UP_UPDATES:]
    return median(row["tokens_per_second"] for row in rows)


def predict(config: RunConfig, vocab_size: int, n: int) -> tuple[float, float]:
    """Tokens per second with ddp, and the share of the time that is spent sending."""
    precision = resolve_precision(config.train.device, config.train.precision)
    weight_bytes = update_on_one_device(config, vocab_size, precision, Machine("any", 1, 1, 1)).weight_bytes
    machine, bytes_per_second = at_once(n, shared_machine, weight_bytes, config.train.precision)
    update = update_on_one_device(config, vocab_size, precision, Machine(**machine))
    cluster = Cluster(n, n, bytes_per_second, bytes_per_second, float("inf"), sends_while_computing=False)
    step = step_of(update, cluster, Layout(n))
    return config.tokens_per_step / step.seconds, step.sending_seconds / step.seconds


def shared_machine(rank: int, n: int, n_bytes: int, precision_name: str) -> tuple[dict[str, Any], float]:
    """The machine, and how many bytes per second an all-reduce sends, as one of n processes finds them."""
    precision = resolve_precision("cpu", precision_name)
    gradients = torch.ones(n_bytes // 4)
    seconds = median(seconds_of(lambda: dist.all_reduce(gradients)) for _ in range(ALL_REDUCES))
    dist.barrier()
    machine = measure_machine(precision.device, precision.dtype)
    dist.barrier()
    return asdict(machine), max(1.0, all_reduce_bytes(n, n_bytes)) / seconds

"""What a busy neighbour costs: the demo's updates beside other programs, with threads and with processes.

    python scripts/measure_neighbours.py --record

Threads share every operation, and wait for each other by spinning, a loop that does nothing: if one of them has to
leave its core to another program, all the others wait, and use up their own time. The three ways take turns, alone and
beside one busy process per two cores; a figure is the median of the updates of all turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import torch
from results import parser, print_table, record

from pellucid.training.metrics import read_rows

CONFIG = Path(__file__).parent.parent / "configs" / "fables.yaml"
WARM_UP_UPDATES, UPDATES = 4, 12
SHORT = [
    "corpus.size=3000",
    "schedule.warmup_steps=0",
    f"train.steps={WARM_UP_UPDATES + UPDATES}",
    "train.log_every_steps=1",
]
SHORT += ["evaluation.max_tokens=1000", "sample.n_samples=1", "sample.max_new_tokens=1"]
# How often libgomp looks whether a thread is done before it sleeps: 300,000 times if nobody says otherwise.
WAYS = {
    "threads that spin, as PyTorch sets them": (["train.processes=1"], {"GOMP_SPINCOUNT": "300000"}),
    "threads that soon sleep": (["train.processes=1"], {}),
    "a process per core": ([f"train.processes={torch.get_num_threads()}"], {}),
}


def milliseconds(folder: Path, changes: list[str], environment: dict[str, str]) -> list[float]:
    """The time of each update of a short run, without the first ones."""
    command = [sys.executable, "-m", "pellucid", "train", str(CONFIG), *SHORT, *changes, "--run-dir", "run"]
    subprocess.run(
        [*command, "--overwrite"], cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True
    )
    rows = read_rows(folder / "run" / "metrics.jsonl")
    tokens = [later["tokens"] - row["tokens"] for row, later in pairwise(rows)]
    rates = [row["tokens_per_second"] for row in rows[1:]]
    return [1000 * n / rate for n, rate in zip(tokens, rates, strict=True)][WARM_UP_UPDATES - 1 :]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=3)
    options = arguments.parse_args()
    measured: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.turns):
            for is_beside in (False, True):
                n_busy = is_beside * max(1, torch.get_num_threads() // 2)
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_busy)]
                try:
                    for name, way in WAYS.items():
                        measured[name, is_beside] += milliseconds(Path(folder), *way)
                finally:
                    for process in busy:
                        process.kill()
                        process.wait()
    figures = {}
    for name in WAYS:
        alone, beside = (statistics.median(measured[name, is_beside]) for is_beside in (False, True))
        figures[name] = {"alone (ms)": alone, "beside (ms)": beside, "of its speed kept (%)": 100 * alone / beside}
    print_table("neighbours", figures)
    if options.record:
        record("neighbours", figures, ["fables/shape"])


if __name__ == "__main__":
    main()

"""The cost of a busy neighbour: the demo's updates beside other programs, with threads and with processes.

Remakes: neighbours
Takes: some minutes
Needs: nothing

Threads share every operation, and wait for each other by spinning, a loop that does nothing: if one of them has to
leave its core to another program, all the others wait, and use up their own time. The three ways take turns, alone and
beside one busy process per two cores; a figure is the median of the updates of all turns.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from results import Entry
from runs import FABLES, pellucid
from timing import take_turns

from pellucid.training.metrics import read_rows

WARM_UP_UPDATES, UPDATES = 4, 12
SHORT = [
    *("corpus.size=3000", "schedule.warmup_steps=0", f"train.steps={WARM_UP_UPDATES + UPDATES}"),
    *("train.log_every_steps=1", "evaluation.max_tokens=1000", "sample.n_samples=1", "sample.max_new_tokens=1"),
]
# How often libgomp looks whether a thread is done before it sleeps: 300,000 times if nobody says otherwise.
WAYS = {
    "threads that spin, as PyTorch sets them": ("train.processes=1", {"GOMP_SPINCOUNT": "300000"}),
    "threads that soon sleep": ("train.processes=1", {}),
    "a process per core": (f"train.processes={torch.get_num_threads()}", {}),
}


def measure(*, turns: int = 3) -> Iterator[Entry]:
    cases = [(name, is_beside) for is_beside in (False, True) for name in WAYS]
    milliseconds_of = take_turns({case: partial(train, *case) for case in cases}, turns)
    medians = {case: median(chain(*of_turns)) for case, of_turns in milliseconds_of.items()}
    figures = {name: as_row(medians[name, False], medians[name, True]) for name in WAYS}
    yield Entry("neighbours", figures, ["fables/shape"])


def train(way: str, is_beside: bool) -> list[float]:
    """Milliseconds of each update."""
    change, environment = WAYS[way]
    with busy_processes(is_beside * max(1, torch.get_num_threads() // 2)):
        pellucid("train", FABLES, *SHORT, change, "--run-dir", "run", "--overwrite", environment=environment)
    return milliseconds(read_rows(Path("run/metrics.jsonl")))[WARM_UP_UPDATES - 1 :]


def as_row(alone: float, beside: float) -> dict[str, float]:
    return {"alone (ms)": alone, "beside (ms)": beside, "of its speed kept (%)": 100 * alone / beside}


def milliseconds(rows: list[dict[str, Any]]) -> list[float]:
    """The time of each update but the first, from a run's metrics."""
    return [1000 * (later["tokens"] - row["tokens"]) / later["tokens_per_second"] for row, later in pairwise(rows)]


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(n):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield

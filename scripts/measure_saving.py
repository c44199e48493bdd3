"""What share of a run's training time its checkpoints cost.

    python scripts/measure_saving.py configs/fables.yaml

Updates and saves take turns in one process; the medians, times the numbers of both in the whole run, give the share.
A save is all of it: the copy, the files and their fsync, the hashes, and the check of the older checkpoints before one
of them is deleted. How much of it is hashing is told apart: an update hashes nothing.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from pathlib import Path

from results import parser, print_table, record

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import step_name
from pellucid.config.load import load_run_config
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.recipe import build_session, build_trainer, prepare_data
from pellucid.training.session import Session

UPDATES_A_TURN = 8


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("config", type=Path)
    arguments.add_argument("--turns", type=int, default=15)
    options = arguments.parse_args()

    keep_freed_memory()
    config = load_run_config(options.config)
    data = prepare_data(config, Path("data"))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run_dir = Path(folder)
        session = build_session(config, data, run_dir, *build_trainer(config, data))
        update_seconds, save_seconds = take_turns(session, options.turns)
        checkpoint = run_dir / step_name(steps_in(run_dir)[-1])
        contents = [file.read_bytes() for file in checkpoint.iterdir()]

    steps = config.train.steps
    intervals = (config.checkpoint.every_steps, config.evaluation.every_steps)
    n_saves = len({step for interval in intervals for step in range(interval, steps + 1, interval)} | {steps})
    share = n_saves * save_seconds / (steps * update_seconds + n_saves * save_seconds)
    found = {
        "an update (ms)": 1000 * update_seconds,
        "a save (ms)": 1000 * save_seconds,
        "hashing it once (ms)": 1000 * hashing_seconds(contents),
        "a save (MB)": sum(map(len, contents)) / 1e6,
        "share of the time (%)": 100 * share,
    }
    print(f"{steps} updates and at most {n_saves} saves")
    print_table("saving", {name: {"median": value} for name, value in found.items()})
    if options.record:
        record("saving", found, [f"{config.name}/shape"])


def take_turns(session: Session, n_turns: int) -> tuple[float, float]:
    """The median seconds of an update and of a save, the first turn left out: it warms up."""
    updates, saves = [], []
    for turn in range(n_turns + 1):
        seconds = [session.trainer.update().seconds for _ in range(UPDATES_A_TURN)]
        started = time.perf_counter()
        session.saver.save(session.progress, 1.0 / session.trainer.step)
        if turn:
            updates.append(statistics.median(seconds))
            saves.append(time.perf_counter() - started)
    return statistics.median(updates), statistics.median(saves)


def hashing_seconds(contents: list[bytes]) -> float:
    started = time.perf_counter()
    for content in contents:
        hashlib.sha256(content).digest()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

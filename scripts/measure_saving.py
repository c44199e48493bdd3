"""What share of a run's training time its checkpoints cost.

    python scripts/measure_saving.py configs/fables.yaml

Updates and saves take turns in one process; the medians, times the numbers of both in the whole run, give the share.
A save is all of it: the copy, the files and their fsync, the hashes, and the check of the older checkpoints before one
of them is deleted. How much of it is hashing is told apart: an update hashes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from pathlib import Path

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import step_name
from pellucid.config import load_run_config
from pellucid.data.build import prepare_data
from pellucid.runtime.allocator import keep_freed_memory
from pellucid.training.build import build_session
from pellucid.training.session import Session

UPDATES_A_TURN = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()

    keep_freed_memory()
    config = load_run_config(arguments.config)
    data = prepare_data(config, Path("data"), progress=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run_dir = Path(folder)
        session = build_session(config, data, run_dir)
        update_seconds, save_seconds = take_turns(session, arguments.turns)
        checkpoint = run_dir / step_name(steps_in(run_dir)[-1])
        contents = [file.read_bytes() for file in checkpoint.iterdir()]

    steps = config.train.steps
    intervals = (config.checkpoint.every_steps, config.evaluation.every_steps)
    n_saves = len({step for interval in intervals for step in range(interval, steps + 1, interval)} | {steps})
    share = n_saves * save_seconds / (steps * update_seconds + n_saves * save_seconds)
    print(f"an update           {update_seconds * 1000:8.1f} ms (median)")
    print(f"a save              {save_seconds * 1000:8.1f} ms (median), {sum(map(len, contents)) / 1e6:.1f} MB")
    print(f"  hashing it once   {hashing_seconds(contents) * 1000:8.1f} ms")
    print(f"{steps} updates and at most {n_saves} saves: {share:.2%} of the time is saving")


def take_turns(session: Session, n_turns: int) -> tuple[float, float]:
    """The median seconds of an update and of a save, the first turn left out: it warms up."""
    updates, saves = [], []
    for turn in range(n_turns + 1):
        seconds = [session.trainer.update().seconds for _ in range(UPDATES_A_TURN)]
        started = time.perf_counter()
        session.save(val_loss=1.0 / session.trainer.step)
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

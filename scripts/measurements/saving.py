"""The share of a run's training time that its checkpoints cost.

Remakes: saving
Takes: half a minute
Needs: nothing

Updates and saves take turns in one process; the medians, times the numbers of both in the whole run, give the share.
A save is all of it: the copy, the files and their fsync, the hashes, and the check of the older checkpoints before one
of them is deleted. Hashing is also timed alone: an update hashes nothing.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from results import Entry
from runs import FABLES
from timing import seconds_of, take_turns

from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import step_name
from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.recipe import build_session, build_trainer, prepare_data

UPDATES_A_TURN = 8


def measure(*, config: Path = FABLES, turns: int = 15) -> Iterator[Entry]:
    keep_freed_memory()
    recipe = load_run_config(config)
    data, run = prepare_data(recipe, Path("data")), Path("run")
    run.mkdir()
    trainer, task = build_trainer(recipe, data)
    session = build_session(recipe, data, run, trainer, task)
    works = {
        "update": lambda: median(trainer.update().seconds for _ in range(UPDATES_A_TURN)),
        "save": lambda: seconds_of(lambda: session.saver.save(session.progress, 1.0 / trainer.step)),
    }
    update, save = map(median, take_turns(works, turns).values())
    contents = [file.read_bytes() for file in (run / step_name(steps_in(run)[-1])).iterdir()]
    n_saves = saves_in(recipe)
    figures = {
        "an update (ms)": 1000 * update,
        "a save (ms)": 1000 * save,
        "hashing it once (ms)": 1000 * seconds_of(lambda: [hashlib.sha256(each).digest() for each in contents]),
        "a save (MB)": sum(map(len, contents)) / 1e6,
        "share of the time (%)": 100 * n_saves * save / (recipe.train.steps * update + n_saves * save),
    }
    yield Entry("saving", figures, [f"{recipe.name}/shape"])


def saves_in(config: RunConfig) -> int:
    """How often a run saves at most: each time that a checkpoint is due or a loss may be the best, and at its end."""
    steps, intervals = config.train.steps, (config.checkpoint.every_steps, config.evaluation.every_steps)
    return len({step for interval in intervals for step in range(interval, steps + 1, interval)} | {steps})

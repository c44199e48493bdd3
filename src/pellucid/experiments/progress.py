"""One bar for all runs of an experiment, and a line for each that ends."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pellucid.experiments.plan import PlannedRun
from pellucid.experiments.results import Failure, RunResult

TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Work:
    """A run that is still to be made: where, how many steps, and its training FLOPs."""

    run_dir: Path
    steps: int
    flops: float

    def done(self) -> float:
        """The FLOPs of the steps that it has reported."""
        return self.flops * min(1.0, last_step(self.run_dir) / self.steps)


class ExperimentBar:
    """How much of the work is done, in FLOPs, as a step of a large model takes longer than one of a small model.

    `todo` has the runs that are still to be made, by their place in the plan.
    """

    def __init__(self, runs: Sequence[PlannedRun], todo: Mapping[int, Work]) -> None:
        self._runs, self._todo = runs, todo
        self._bar: tqdm[Any] = tqdm(
            total=sum(work.flops for work in todo.values()),
            initial=sum(work.done() for work in todo.values()),
            bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True,
            mininterval=0.5,
            miniters=0,  # look at the clock at every call
            smoothing=0,  # the mean speed since the start
        )

    def show(self, outcomes: Mapping[int, RunResult | Failure]) -> None:
        """Moves the bar to where the runs are now."""
        self._bar.n = sum(work.flops if i in outcomes else work.done() for i, work in self._todo.items())
        n_failed = sum(isinstance(outcome, Failure) for outcome in outcomes.values())
        left = f"{len(self._runs) - len(outcomes)} of {len(self._runs)} runs left"
        self._bar.set_postfix_str(left + (f", {n_failed} failed" if n_failed else ""), refresh=False)
        self._bar.update(0)

    def write(self, i: int, outcome: RunResult | Failure) -> None:
        """A line above the bar for a run that is over."""
        run = self._runs[i]
        self._bar.write(f"{run.label}, seed {run.seed}: {_in_short(outcome)}", file=self._bar.fp)

    def close(self) -> None:
        self._bar.close()


def last_step(run_dir: Path) -> int:
    """The last step in metrics.jsonl; 0 if there is none yet. Reads only the end of the file."""
    try:
        with (run_dir / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            whole_lines = file.read().split(b"\n")[:-1]
        return int(json.loads(whole_lines[-1])["step"])
    except (OSError, ValueError, IndexError):
        return 0


def _in_short(outcome: RunResult | Failure) -> str:
    if isinstance(outcome, Failure):
        return f"failed: {outcome.message}"
    excess = "" if outcome.excess is None else f", excess {outcome.excess:.4f}"
    return f"loss {outcome.val_loss:.4f}{excess}, {outcome.seconds:.0f} s"

"""The progress bar of an experiment, with a line for each run that ends."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pellucid.experiments.plan import PlannedRun
from pellucid.experiments.results import Failure, RunResult

TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class Work:
    """A run that is not finished: its folder, steps and training FLOPs."""

    run_dir: Path
    steps: int
    flops: float

    def done(self) -> float:
        """The FLOPs of the steps that the run has reported."""
        return self.flops * min(1.0, last_step(self.run_dir) / self.steps)


class ExperimentBar(tqdm):  # type: ignore[type-arg]
    """A bar of the work done, in FLOPs, as a step of a large model takes longer than one of a small model.

    todo: the unfinished runs, by their index in the plan.
    """

    def __init__(self, runs: Sequence[PlannedRun], todo: Mapping[int, Work]) -> None:
        self.runs, self.todo = runs, todo
        super().__init__(
            total=sum(work.flops for work in todo.values()),
            initial=sum(work.done() for work in todo.values()),
            bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True,
            mininterval=0.5,
            miniters=0,  # look at the clock at every call
            smoothing=0,  # the mean speed since the start
        )

    def show(self, outcomes: Mapping[int, RunResult | Failure]) -> None:
        self.n = sum(work.flops if i in outcomes else work.done() for i, work in self.todo.items())
        n_failed = sum(isinstance(outcome, Failure) for outcome in outcomes.values())
        left = f"{len(self.runs) - len(outcomes)} of {len(self.runs)} runs left"
        self.set_postfix_str(left + (f", {n_failed} failed" if n_failed else ""), refresh=False)
        self.update(0)

    def announce(self, i: int, outcome: RunResult | Failure) -> None:
        """Print a line above the bar for a run that has ended."""
        if isinstance(outcome, Failure):
            text = f"failed: {outcome.message}"
        else:
            excess = "" if outcome.excess is None else f", excess {outcome.excess:.4f}"
            text = f"loss {outcome.val_loss:.4f}{excess}, {outcome.seconds:.0f} s"
        self.write(f"{self.runs[i].label}, seed {self.runs[i].seed}: {text}", file=self.fp)


def last_step(run_dir: Path) -> int:
    """The last step in metrics.jsonl; 0 if there is none yet. Reads only the end of the file."""
    try:
        with (run_dir / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            complete_lines = file.read().split(b"\n")[:-1]
        return int(json.loads(complete_lines[-1])["step"])
    except (OSError, ValueError, IndexError):
        return 0

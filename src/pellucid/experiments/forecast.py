"""A forecast of an experiment's cost: counted from the configs, with the machine's measured speed."""

import heapq
from collections.abc import Sequence
from pathlib import Path

import torch

from pellucid.checkpoint.run_directory import steps_in
from pellucid.cost.machine import Machine, measure_machine
from pellucid.cost.step_time import duration, step_seconds
from pellucid.experiments.plan import Plan, PlannedRun
from pellucid.experiments.results import read_result
from pellucid.runs.cost_of_run import cost_of_run, vocab_size_of
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.tables import table

HEADER = ["run", "seeds", "parameters", "steps", "tokens", "FLOPs", "time each", "state"]
FINISHED = "finished"


def threads_of_each(jobs: int) -> int:
    """The number of threads for each of `jobs` runs at a time.

    It stays the same for the last run alone, as it decides the order of sums, and so a result's last digits.
    """
    return max(1, torch.get_num_threads() // jobs)


def forecast_table(plan: Plan, folder: Path, jobs: int) -> str:
    """The plan as a table, a line for seeds that are as far, and how long all of it should take.

    Nothing is written. Raises ConfigError for a run that this machine cannot make.
    """
    vocab_sizes: dict[str, int] = {}
    machines: dict[Precision, Machine] = {}
    seeds: dict[tuple[str, ...], list[int]] = {}
    seconds_left = []
    torch.set_num_threads(threads_of_each(jobs))  # to measure the speed that each run will have
    for run in plan.runs:
        if run.corpus_key not in vocab_sizes:
            vocab_sizes[run.corpus_key] = vocab_size_of(run.config)
        precision = resolve_precision(run.config.train.device, run.config.train.precision)
        if precision not in machines:
            machines[precision] = measure_machine(precision.device, precision.dtype)
        cost = cost_of_run(run.config, vocab_sizes[run.corpus_key], precision)
        seconds = cost.steps * step_seconds(cost.step_work, machines[precision])
        state, share_left = _state(run, run.directory(folder))
        seconds_left.append(seconds * share_left)
        tokens, flops = cost.steps * cost.tokens_per_step, cost.steps * cost.training_flops_per_step
        counts = [f"{cost.model.parameters.total:,}", f"{cost.steps:,}", f"{tokens:,}", f"{flops:.2e}"]
        seeds.setdefault((run.label, *counts, duration(seconds), state), []).append(run.seed)
    left = duration(total_seconds(seconds_left, jobs))
    rows = [[label, ", ".join(map(str, numbers)), *rest] for (label, *rest), numbers in seeds.items()]
    following = [i for i, (*_, state) in enumerate(rows) if state != FINISHED]
    end = f"{len(seconds_left)} runs, {jobs} at a time: about {left} left, evaluations aside"
    return table(HEADER, rows, dict.fromkeys(following[:1], "bold"), below=[end], words=(0, 7))


def total_seconds(seconds: Sequence[float], jobs: int) -> float:
    """The end of the last run, if each begins as soon as one of `jobs` places is free."""
    ends = [0.0] * jobs
    for duration_of_run in seconds:
        heapq.heapreplace(ends, ends[0] + duration_of_run)
    return max(ends)


def _state(run: PlannedRun, run_dir: Path) -> tuple[str, float]:
    """The state of a run in words, and the share that is left to do."""
    if read_result(run_dir, run) is not None:
        return FINISHED, 0.0
    if steps := steps_in(run_dir):
        return f"to resume at step {steps[-1]}", 1 - steps[-1] / run.config.train.steps
    return "to run", 1.0

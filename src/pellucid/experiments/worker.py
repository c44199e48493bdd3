"""One run of an experiment, in a process of its own: train, evaluate, measure, and write result.json last of all.

The process is started by `process.py`, which leaves plan.json in the run's folder.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from pellucid.checkpoint.build import load_trained_model
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.cost.build import cost_of, training_flops
from pellucid.data.build import PreparedData, prepare_data
from pellucid.errors import RunInUseError
from pellucid.evaluation.loss import Evaluation
from pellucid.experiments.measures import at_context_lengths, first_gradient_norms, ways_to_write
from pellucid.experiments.plan import PLAN_FILE, PlannedRun
from pellucid.experiments.results import RunResult, write_result
from pellucid.runtime.precision import resolve_precision
from pellucid.training.interrupts import stop_with_parent
from pellucid.training.metrics import read_rows
from pellucid.training.train_run import Outcome, train_run

LONGEST_WAIT_SECONDS = 60.0  # for the process of an experiment that was killed, which still saves


def work(run_dir: Path, data_root: Path) -> int | None:
    """Does what plan.json in the folder says. Returns the number of the signal that stopped it, if one did.

    Raises what `train_run` raises.
    """
    stop_with_parent()
    return make_run(PlannedRun.model_validate_json((run_dir / PLAN_FILE).read_bytes()), run_dir, data_root)


def make_run(run: PlannedRun, run_dir: Path, data_root: Path) -> int | None:
    """Trains, evaluates, measures, and writes result.json. Returns and raises what `work` does."""
    outcome = _train_when_free(run, data_root, run_dir)
    if outcome.evaluation is None:
        return outcome.stopped_by
    data = prepare_data(run.config, data_root)
    assert isinstance(outcome.evaluation, Evaluation), "experiments compare losses of text"
    write_result(run_dir, run, _result(run, data, run_dir, outcome.evaluation))
    return None


def _train_when_free(run: PlannedRun, data_root: Path, run_dir: Path) -> Outcome:
    """Trains, from the newest checkpoint if there is one."""
    note = partial(print, file=sys.stderr, flush=True)
    give_up = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            return train_run(run.config, data_root, run_dir, resume=True, overwrite=False, note=note)
        except RunInUseError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def _result(run: PlannedRun, data: PreparedData, run_dir: Path, evaluation: Evaluation) -> RunResult:
    config, measures = run.config, run.measures
    vocab_size = data.tokenizer.vocab_size
    parts = cost_of(config.model, vocab_size).parameters
    rows = read_rows(run_dir / "metrics.jsonl")
    trained = load_trained_model(find_step_directory(run_dir, "latest"))
    precision = resolve_precision(config.train.device, config.train.precision)
    return RunResult(
        label=run.label,
        seed=run.seed,
        overrides=run.overrides,
        parameters=parts.total,
        non_embedding_parameters=parts.total - parts.embedding - parts.positions - parts.unembedding,
        flops=float(training_flops(config.model, vocab_size, rows[-1]["tokens"])),
        tokens=rows[-1]["tokens"],
        seconds=rows[-1]["elapsed_seconds"],
        val_loss=evaluation.loss_nats_per_token,
        bits_per_byte=evaluation.bits_per_byte,
        floor=evaluation.floor_nats_per_token,
        excess=evaluation.excess_nats_per_token,
        skills={} if evaluation.skills is None else evaluation.skills.to_json(),
        curve=[row for row in rows if "val_loss" in row],
        contexts=at_context_lengths(trained, data, precision, measures.contexts),
        gradient_norms=first_gradient_norms(config, data) if measures.gradient_norms else [],
        writing=ways_to_write(trained, precision, measures.writing) if measures.writing else {},
    )

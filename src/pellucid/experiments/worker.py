"""Makes one run of an experiment, in a process of its own: train, evaluate, measure, write result.json.

`process.py` starts it, and leaves plan.json in the run's folder.
"""

import sys
import time
from functools import partial
from pathlib import Path

import torch

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.cost.build import cost_of, training_flops
from pellucid.errors import ConfigError, RunInUseError
from pellucid.evaluation.loss import Evaluation
from pellucid.experiments.measures import TrainedRun, answers_to_instructions, on_other_texts
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import PLAN_FILE, PlannedRun
from pellucid.experiments.results import RunResult, write_result
from pellucid.objectives.task import Validation
from pellucid.recipe import evaluate
from pellucid.runs.evaluate_run import data_of_trained
from pellucid.runs.train_run import Outcome, train_run
from pellucid.runtime.precision import resolve_precision
from pellucid.trained import load_trained_model
from pellucid.training.interrupts import stop_with_parent
from pellucid.training.metrics import read_rows

LONGEST_WAIT_SECONDS = 60.0  # for an earlier process of a killed experiment, which may still be saving


def work(run_dir: Path, data_root: Path) -> int | None:
    """Make the run of the plan.json in the folder. Returns the number of the signal that stopped it, if any.

    Raises the errors of `train_run`.
    """
    stop_with_parent()
    return make_run(PlannedRun.model_validate_json((run_dir / PLAN_FILE).read_bytes()), run_dir, data_root)


def make_run(run: PlannedRun, run_dir: Path, data_root: Path) -> int | None:
    """Train, evaluate, measure, and write result.json. Returns and raises as `work` does."""
    own = _own_code(run)
    outcome = _train_when_free(run, data_root, run_dir)
    if outcome.evaluation is None:
        return outcome.stopped_by
    write_result(run_dir, run, _result(run, own, data_root, run_dir, outcome.evaluation))
    return None


def _train_when_free(run: PlannedRun, data_root: Path, run_dir: Path) -> Outcome:
    """Train, from the newest checkpoint if there is one, once no other process trains in the folder."""
    note = partial(print, file=sys.stderr, flush=True)
    give_up = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        try:
            return train_run(run.config, data_root, run_dir, resume=True, overwrite=False, note=note)
        except RunInUseError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)


def _result(run: PlannedRun, own: OwnCode, data_root: Path, run_dir: Path, evaluation: Validation) -> RunResult:
    """The result of a trained run; its loss is always that of the validation text, as it was in training."""
    config = run.config
    rows = read_rows(run_dir / "metrics.jsonl")
    directory = find_step_directory(run_dir, "latest")
    trained = load_trained_model(directory)
    data = data_of_trained(trained, data_root, str(run_dir))
    vocab_size = data.tokenizer.vocab_size
    parts = cost_of(config.model, vocab_size).parameters
    precision = resolve_precision(config.train.device, config.train.precision)
    trained.model.to(precision.device)
    to_measure = TrainedRun(trained, data, precision, run.texts)
    if not isinstance(evaluation, Evaluation):  # of answers
        evaluation = evaluate(config, data, trained.model, precision)
    left_out = () if config.reads_text else ("val_loss",)  # that of answers is not that of text
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
        left_to_learn=evaluation.left_to_learn,
        impossible=None if evaluation.impossible is None else evaluation.impossible.mean,
        skills={} if evaluation.skills is None else evaluation.skills.to_json(),
        curve=[{key: value for key, value in row.items() if key not in left_out} for row in rows if "val_loss" in row],
        texts=on_other_texts(to_measure),
        answers=answers_to_instructions(to_measure, run.measures.answers) if run.measures.answers else {},
        trained_parameters=_n_saved(directory) if config.start_from else None,
        measured=own.measure(to_measure),
    )


def _own_code(run: PlannedRun) -> OwnCode:
    """The code that the run was planned with. Raises ConfigError if it has been edited since."""
    code = OwnCode(Path(run.own.path if run.own else ""))
    if code.file != run.own:
        raise ConfigError(str(code.path), "it was edited after the experiment had begun", "run the same command again")
    return code


def _n_saved(directory: Path) -> int:
    """The number of weights in a checkpoint, without the frozen ones of an adapter's base."""
    return sum(map(torch.numel, read_checkpoint(directory).model.values()))

"""`pellucid train`: from a config to a trained model on disk."""

import logging
import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pellucid.adapters.quantized import n_quantized
from pellucid.checkpoint.ownership import begin_run, require_own
from pellucid.checkpoint.run_directory import locked, steps_in
from pellucid.checkpoint.step_directory import Checkpoint, read_checkpoint
from pellucid.config.overrides import Note
from pellucid.config.run import RunConfig
from pellucid.data.prepared import PreparedData
from pellucid.errors import ConfigError
from pellucid.files import write_whole
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.objectives.task import Task, Validation
from pellucid.recipe import build_batches, build_session, build_trainer, prepare_data
from pellucid.runs.processes import choose_n_processes
from pellucid.runs.resume import (
    checkpoint_for_steps,
    discard_later,
    newest_intact_checkpoint,
    other_environment,
    require_no_run,
    require_same_data,
    require_same_reward,
    require_same_run,
)
from pellucid.runs.start_from import base_of, needs_base, read_base, require_same_vocabulary
from pellucid.runtime.distributed import World, connected, with_helpers
from pellucid.runtime.precision import precision_here, resolve_precision
from pellucid.trained import Base, config_of, load_trained_run, with_own_tokenizer
from pellucid.training.interrupts import StoppedBySignal
from pellucid.training.optimizers import trained
from pellucid.training.schedules import build_schedule
from pellucid.training.session import Session
from pellucid.training.trackers import require_installed
from pellucid.training.trainer import Trainer

_log = logging.getLogger(__name__)

LONG_RUN_SECONDS = 30
UPDATES_TO_JUDGE, SECONDS_TO_JUDGE = 10, 3.0  # at least both, to estimate how long an update takes
MOST_EPOCHS = 4  # text read up to four times is nearly as good as new text (Muennighoff et al. 2023)


@dataclass(frozen=True)
class Outcome:
    """The end of a run: evaluated, at its best step too if that is not the last; or saved and stopped by a signal."""

    step: int
    evaluation: Validation | None
    stopped_by: int | None
    best_step: int | None = None
    best: Validation | None = None


def train_run(
    config: RunConfig,
    data_root: Path,
    run_dir: Path,
    *,
    resume: bool,
    overwrite: bool,
    note: Note,
    minutes: float | None = None,
) -> Outcome:
    """Train as the config says, in `run_dir`. `note` receives lines for the person watching.

    minutes: make only as many steps as fit into this time on this machine; decided when the run begins.
    Raises ConfigError if the folder holds a run and neither option is given, or if the package of a tracker is missing,
    CheckpointError if the run cannot be resumed; all before a run is overwritten.
    """
    world = World.of_torchrun()
    if not world.is_first:
        return _train_as_rank(config, data_root, run_dir, minutes, world)
    require_installed(config.trackers)
    if config.quantization != "none" and config.adapter is None:
        what = f"{config.quantization} weights are frozen, and there is nothing else to train"
        fix = "add `adapter: {type: lora}` and `start_from: RUN`, or leave it out"
        raise ConfigError("quantization", what, fix)
    is_resumed = resume or world.is_restart
    if not (is_resumed and steps_in(run_dir)):  # what is damaged is written anew, and no step is deleted
        require_own(run_dir)
    with locked(run_dir):
        if not (is_resumed or overwrite):
            require_no_run(run_dir)
        resume_from = newest_intact_checkpoint(run_dir) if is_resumed else None
        if resume_from:
            config = _as_begun(config, minutes, resume_from)
            require_same_run(config, resume_from[0], str(resume_from[1]))
            resume_from = checkpoint_for_steps(config, resume_from, run_dir)
        base = base_of(config, resume_from)
        n_processes = choose_n_processes(config, world)
        if config.train.compile:
            from pellucid.runtime.compiler import require_compiler

            require_compiler(precision_here(config.train.device, config.train.precision).device)
        train_as_rank = partial(_train_as_rank, config, data_root, run_dir, minutes)
        with with_helpers(n_processes, train_as_rank) if n_processes > world.size else nullcontext(world) as world:
            world.announce("start", resume_from[1].name if resume_from else "")
            world.announce("base", str(base.directory) if base else "")
            return train_as_rank(world, resume_from, base, note)


def _train_as_rank(
    config: RunConfig,
    data_root: Path,
    run_dir: Path,
    minutes: float | None,
    world: World,
    resume_from: tuple[Checkpoint, Path] | None = None,
    base: Base | None = None,
    note: Note = lambda _line: None,
) -> Outcome:
    """Train as one of the ranks: find out where to start, prepare the data, open the session, train.

    The first rank knows the checkpoint to resume, if any, or the base, another run to start from. The others ask it.
    """
    keep_freed_memory()
    if not world.is_first:
        resume_from, base = _wait_for_the_first(world, run_dir)
    config, data = _prepare(config, data_root, run_dir, world, is_resumed=resume_from is not None)
    if base is not None:
        require_same_vocabulary(base, data.tokenizer)
        if world.is_first:
            _warn_if_never_instructed(config, base)
    with connected(world, resolve_precision(config.train.device, config.train.precision).device):
        if resume_from:
            config = _as_begun(config, minutes, resume_from)
        trainer, task = build_trainer(config, data, world, base)
        if minutes is not None and not resume_from:
            steps = _steps_that_fit(config, data, trainer, task, minutes)
            time_given = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
            note(f"time    {steps:,} of {config.train.steps:,} steps fit into {time_given}")
            config = _with_steps(config, steps)
            trainer.schedule = build_schedule(config.schedule, steps)
        base_sha256 = base.sha256 if base and needs_base(config) else None
        session = build_session(config, data, run_dir, trainer, task, base_sha256)
        if resume_from:
            _continue_from(resume_from, session, config, data, world)
        elif world.is_first:
            begin_run(run_dir)
        return _train(config, data, session, task, note, base)


def _wait_for_the_first(world: World, run_dir: Path) -> tuple[tuple[Checkpoint, Path] | None, Base | None]:
    """The checkpoint to resume and the run to start from, read from the folders that the first rank announces."""
    resume_from, base = None, None
    if name := world.wait_for("start"):
        resume_from = read_checkpoint(run_dir / name), run_dir / name
    if name := world.wait_for("base"):
        base = read_base(Path(name))
    return resume_from, base


def _prepare(
    config: RunConfig, data_root: Path, run_dir: Path, world: World, *, is_resumed: bool
) -> tuple[RunConfig, PreparedData]:
    """The data, and the config with the run's own tokenizer: the run it started from may be gone when it resumes."""
    with_own_vocabulary = with_own_tokenizer(config, run_dir)
    has_own = is_resumed and config.start_from is not None and (run_dir / "tokenizer.json").exists()
    data = world.first_on_machine(lambda: prepare_data(with_own_vocabulary if has_own else config, data_root))
    return with_own_vocabulary, data


def _warn_if_never_instructed(config: RunConfig, base: Base) -> None:
    """Warn if a model that never saw instructions is to learn from its own answers to them."""
    writes = config.corpus.type == "instructions" and config.objective.type != "sft"
    if writes and not base.tokenizer.has_chat_tokens:
        what = "%s was not trained on conversations, so hardly any of its answers will earn a reward"
        fix = "fine-tune it first: `pellucid train instructions_sft`"
        _log.warning(f"start_from: {what}; {fix}", base.run)


def _continue_from(
    resume_from: tuple[Checkpoint, Path], session: Session, config: RunConfig, data: PreparedData, world: World
) -> None:
    """Restore the session from a checkpoint, if data and reward are those it was trained with."""
    checkpoint, directory = resume_from
    saver = session.saver
    require_same_data(data.fingerprint, saver.origin.tokenizer_json, checkpoint, str(directory))
    require_same_reward(saver.origin.reward_sha256, checkpoint, str(directory))
    if world.is_first and config_of(checkpoint, str(directory)).train.steps != config.train.steps:
        discard_later(saver.run_dir, checkpoint.state.step)
    session.restore(checkpoint, str(directory))
    changes = other_environment(saver.environment(), checkpoint)
    if changes and world.is_first:
        _log.warning("%s: %s; the run continues, but not bit for bit as it would have", directory, changes)


def _steps_that_fit(config: RunConfig, data: PreparedData, trainer: Trainer, task: Task, minutes: float) -> int:
    """The number of updates, with their evaluations, that fit into this time: measured on a few trial updates."""
    seconds: list[float] = []
    with trainer.on_trial():
        is_enough = False
        while not is_enough:
            seconds.append(trainer.update().seconds)
            is_short = len(seconds) < UPDATES_TO_JUDGE or sum(seconds) < SECONDS_TO_JUDGE
            is_enough = not trainer.world.largest(int(is_short))  # for all ranks
        started = time.perf_counter()
        task.evaluate(trainer.model, config.evaluation.max_tokens)
        per_evaluation = time.perf_counter() - started
    per_update = statistics.median(seconds[len(seconds) // 2 :])  # the first ones take longer
    n_targets = data.validation.n_targets
    last_evaluation = per_evaluation * n_targets / min(n_targets, config.evaluation.max_tokens or n_targets)
    fitting = (60 * minutes - last_evaluation) / (per_update + per_evaluation / config.evaluation.every_steps)
    steps = max(1, config.schedule.warmup_steps, int(min(fitting, config.train.steps)))
    return trainer.world.largest(steps if trainer.world.is_first else 0)


def _as_begun(config: RunConfig, minutes: float | None, resume_from: tuple[Checkpoint, Path]) -> RunConfig:
    """The config; if minutes decide its steps, with the steps that were decided when the run began."""
    checkpoint, directory = resume_from
    return config if minutes is None else _with_steps(config, config_of(checkpoint, str(directory)).train.steps)


def _with_steps(config: RunConfig, steps: int) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})


def _train(
    config: RunConfig, data: PreparedData, session: Session, task: Task, note: Note, base: Base | None
) -> Outcome:
    trainer, report, run_dir, world = session.trainer, session.report, session.report.run_dir, session.trainer.world
    if session.is_finished:
        note(f"{run_dir} is finished, after {trainer.step} steps")
        if world.is_first and not report.figure.exists():  # the run was killed between its last save and its plot
            report.plot(trainer.step)
    else:
        if world.is_first:
            origin = session.saver.origin
            write_whole(run_dir / "config.yaml", origin.config_yaml)  # a page may be reading it
            write_whole(run_dir / "tokenizer.json", origin.tokenizer_json)
            for line in _introduction(config, data, session, base):
                note(line)
        try:
            session.run()
        except StoppedBySignal as stop:
            return Outcome(trainer.step, None, stop.signal_number)
        note(f"trained in {_speed(config, data, session)}; {report.figure} shows how, samples.md what it wrote")
    last = task.evaluate(trainer.model, None)
    if session.progress.best_step in (None, trainer.step):
        return Outcome(trainer.step, last, None)
    best, _ = load_trained_run(run_dir, "best")
    return Outcome(trainer.step, last, None, best.step, task.evaluate(best.model, None))


def _speed(config: RunConfig, data: PreparedData, session: Session) -> str:
    """The run's seconds; after a longer run also its FLOP/s and MFU, which take a moment to count and to measure."""
    seconds, precision = session.progress.elapsed_seconds, session.trainer.precision
    if seconds < LONG_RUN_SECONDS:
        return f"{seconds:.0f} s"
    from pellucid.cost.build import training_flops
    from pellucid.cost.machine import measure_flops_per_second
    from pellucid.cost.step_time import model_flops_utilization

    try:
        flops = training_flops(config.model, data.tokenizer.vocab_size, session.progress.tokens)
    except RuntimeError:  # the model cannot be counted on fake tensors
        return f"{seconds:.0f} s"
    speed = f"{seconds:.0f} s, at {flops / seconds / 1e9:,.1f} GFLOP/s"
    if session.trainer.world.size > 1:  # the other processes would disturb the measurement
        return speed
    peak = measure_flops_per_second(precision.device, precision.dtype)
    utilization = model_flops_utilization(flops, seconds, peak)
    return f"{speed} (MFU {utilization:.0%}: large matrix products reach {peak / 1e9:,.0f} GFLOP/s here)"


def _introduction(config: RunConfig, data: PreparedData, session: Session, base: Base | None) -> list[str]:
    trainer, train, patience = session.trainer, config.train, config.evaluation.early_stopping_patience
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters()) + n_quantized(trainer.model)
    n_trained = sum(parameter.numel() for parameter in trained(trainer.model))
    learning = "" if n_trained == n_parameters else f", of which {n_trained:,} are trained"
    epochs = train.steps * train.gradient_accumulation_steps / build_batches(config, data).steps_per_epoch
    floor = session.report.floor
    if not config.writes_its_own_text and epochs > MOST_EPOCHS and patience is None:
        fix = "give more text, lower train.steps, set evaluation.early_stopping_patience, or train `own_text` instead"
        _log.warning("the text will be read %.0f times, and a model memorizes what it reads often; %s", epochs, fix)
    return [
        f"{'resuming' if trainer.step else 'training'} {config.name} in {session.report.run_dir}"
        + (f" at step {trainer.step}" if trainer.step else ""),
        *([] if base is None else [f"from    {base.run} step {base.checkpoint.state.step:,}"]),
        f"model   {n_parameters:,} parameters{learning}, vocabulary {data.tokenizer.vocab_size:,}",
        f"data    {data.train.n_targets:,} training tokens; "
        f"up to {config.tokens_per_step:,} positions a step, {epochs:.2f} epochs"
        + ("" if patience is None else " at most: early stopping may end the run")
        if not config.writes_its_own_text
        else f"data    texts of its own, judged; up to {config.tokens_per_step:,} positions a step",
        f"device  {trainer.precision.device}, {str(trainer.precision.dtype).removeprefix('torch.')}"
        + (f", {trainer.world.size} processes" if trainer.world.size > 1 else ""),
        *([] if floor is None else [f"floor   {floor:.4f} nats/token: no model can do better on the validation text"]),
        *([f"scale   {data.scale}"] if config.reads_text and config.objective.type != "masked" and data.scale else []),
    ]

"""The life of a run: update, log, evaluate, write samples, save; stop when asked; resume as if nothing had happened.

It writes metrics.jsonl, samples.md, loss.png or rewards.png, and step directories (see `checkpoint/`).
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from tqdm import tqdm

from pellucid import failpoints
from pellucid.checkpoint.ownership import NOT_SAVED_YET
from pellucid.checkpoint.run_directory import keep_last_and_best, log_as_seen
from pellucid.checkpoint.snapshots import discard_snapshots_after, write_snapshot
from pellucid.checkpoint.step_directory import (
    METRICS,
    SAMPLES,
    Checkpoint,
    State,
    Tensors,
    Unreported,
    step_name,
    write_checkpoint,
)
from pellucid.checkpoint.training_state import (
    first_not_finite,
    load_training_state,
    model_tensors,
    optimizer_tensors,
    rng_tensors,
    task_tensors,
)
from pellucid.errors import LostProcessError, NonFiniteError, in_short
from pellucid.files import fsync
from pellucid.objectives.task import Task, Validation
from pellucid.training import metrics
from pellucid.training.interrupts import StoppedBySignal, StopRequest, stop_requests
from pellucid.training.logs import cut_back_logs
from pellucid.training.progress_bar import ProgressBar
from pellucid.training.trackers import Trackers
from pellucid.training.trainer import Trainer, Update, not_finite
from pellucid.version import __version__

_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Session:
    """A run of at most `n_steps`, with early stopping (Prechelt 1998).

    It stops when the validation loss reaches `stop_at_val_loss`, or has no new best in `patience` evaluations.
    `validate()` evaluates on validation text, `write_samples()` gives texts to show. Each checkpoint holds the config,
    the tokenizer, the data's fingerprint and, if the run needs the frozen weights of another, their hash: so it is
    complete, and a resumed run can be compared with it.
    """

    trainer: Trainer
    run_dir: Path
    name: str
    n_steps: int
    stop_at_val_loss: float | None
    patience: int | None
    # Intervals in steps. All four also happen at the last step.
    log_every: int
    evaluate_every: int
    sample_every: int
    save_every: int

    keep_last: int
    before_decay: int | None  # a step to save and keep, from which a longer run can go on
    snapshots_at: Sequence[int]  # steps whose weights are kept to look at
    floor: float | None
    task: Task
    validate: Callable[[], Validation]
    write_samples: Callable[[], Sequence[str]]
    config_yaml: str
    tokenizer_json: str
    data_fingerprint: str
    base_sha256: str | None
    reward_sha256: str | None
    trackers: Trackers

    tokens: int = 0
    elapsed_seconds: float = 0.0
    best_loss: float = math.inf
    best_step: int | None = None
    evaluations_since_best: int = 0
    saved_step: int | None = None
    unreported: Update | None = None  # the last update, if a stop came before it was evaluated and logged

    def __post_init__(self) -> None:
        self.world = self.trainer.world  # all ranks do the same; the first alone writes files and speaks
        self.metrics_file, self.samples_file = self.run_dir / METRICS, self.run_dir / SAMPLES

    def restore(self, checkpoint: Checkpoint, where: str) -> None:
        """Restore the run from a checkpoint: counters, log files, weights, moments, random generators."""
        trainer, state = self.trainer, checkpoint.state
        load_training_state(trainer.model, trainer.optimizers, checkpoint, where)
        trainer.scaler.load_state_dict(state.grad_scaler)
        self.task.restore(task_tensors(checkpoint.rng))
        trainer.step, self.saved_step, self.tokens = state.step, state.step, state.tokens
        self.elapsed_seconds = state.elapsed_seconds
        self.best_loss = math.inf if state.best_loss is None else state.best_loss
        self.best_step, self.evaluations_since_best = state.best_step, state.evaluations_since_best
        if state.unreported is not None:
            update = Update(**state.unreported.model_dump())
            self.unreported = replace(update, gradient_norm=math.inf) if update.gradient_norm is None else update
        last_reported = state.step - (self.unreported is not None)
        if self.world.is_first:
            cut_back_logs(self.run_dir, state, last_reported)
            discard_snapshots_after(self.run_dir, last_reported)

    def run(self) -> None:
        """Train to the last step. On Ctrl-C or SIGTERM, save and raise StoppedBySignal.

        Raises NonFiniteError, naming the last good checkpoint, before NaN or infinity gets into the weights.
        """
        try:
            n_reported = self.trainer.step - (self.unreported is not None)
            is_shown = self.world.is_first
            bar = ProgressBar(self.n_steps, n_reported, self.floor, is_shown=is_shown, log_every=self.log_every)
            if self.world.is_first:
                metrics.warn_of_damage(self.metrics_file)
            with self.trackers.opened(n_reported + 1, metrics.read_rows(self.metrics_file)):
                with stop_requests(self.world) as stop, bar:
                    self._train(stop, bar)
                if self.world.is_first:
                    self.plot()
        except NonFiniteError as error:
            last = "nothing was saved yet" if self.saved_step is None else f"{step_name(self.saved_step)} is good"
            raise NonFiniteError(error.where, error.what, f"{error.fix}; {last}") from None

    def plot(self) -> None:
        """Draw loss.png or rewards.png from metrics.jsonl, and skills.png where the truth is known."""
        with self._only_shown("figures"):
            from pellucid.training import plots  # takes a second: matplotlib

            rows = metrics.read_rows(self.metrics_file)
            if self.task.figure == "rewards.png":
                figures = {"rewards.png": plots.rewards_figure(rows, f"{self.name}: what its answers are worth")}
            else:
                figures = {"loss.png": plots.loss_figure(rows, self.floor, f"{self.name}: loss while training")}
            if any("skills" in row for row in rows):
                figures["skills.png"] = plots.skills_figure(rows, f"{self.name}: what is learned when")
            for name, figure in figures.items():
                plots.save_figure(figure, self.run_dir / name)
                self.trackers.log_figure(self.trainer.step, self.run_dir / name)

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended, by its steps or by early stopping, and its last update is reported."""
        return self.unreported is None and self._ends_with(self.best_loss, self.evaluations_since_best)

    def environment(self) -> dict[str, str | int]:
        """The six properties that must stay the same for a resumed run to be identical bit for bit."""
        precision = self.trainer.precision
        return {
            "pellucid_version": __version__,
            "torch_version": torch.__version__,
            "device": str(precision.device),
            "dtype": str(precision.dtype),
            "threads": torch.get_num_threads(),
            "processes": self.world.size,
        }

    def _train(self, stop: StopRequest, bar: ProgressBar) -> None:
        if self.unreported is not None:
            self._report(self.unreported, stop, bar)
            self.unreported = None
        elif self.trainer.step == 0:
            self._snapshot(None)
        while not self.is_finished:
            failpoints.reached("update")
            update = self.trainer.update()
            self.tokens += update.tokens
            self.elapsed_seconds += update.seconds
            self._report(update, stop, bar)

    def _report(self, update: Update, stop: StopRequest, bar: ProgressBar) -> None:
        """Do whatever is due after an update: evaluate, write samples, log, save.

        A stop request comes first: the update is saved as it is, and the resumed run begins with its report.
        """
        started = time.perf_counter()
        stop.agree()  # all ranks stop, or none
        try:
            with stop.ends_block():  # a signal ends it at once, since the resumed run can repeat it
                failpoints.reached("evaluate")
                evaluation = self._validate() if self._due(self.evaluate_every) else None
                val_loss = None if evaluation is None else evaluation.loss
                best_loss = min(self.best_loss, math.inf if val_loss is None else val_loss)
                is_best = best_loss < self.best_loss
                since_best = 0 if is_best else self.evaluations_since_best + (val_loss is not None)
                is_last = self._ends_with(best_loss, since_best)
                samples: Sequence[str] = []
                if is_last or self._due(self.sample_every):
                    with self._only_shown("samples"):
                        samples = self.write_samples()
        except StoppedBySignal:
            if self.saved_step != self.trainer.step:
                self.save(None, unreported=update)
            raise
        self.elapsed_seconds += time.perf_counter() - started
        if samples and self.world.is_first:
            self._append_samples(samples)
        is_kept = self.trainer.step in self.snapshots_at  # a snapshot needs its point on the loss curve
        if self.world.is_first and (val_loss is not None or is_kept or self._due(self.log_every)):
            self._log(update, evaluation)
        self.best_loss, self.evaluations_since_best = best_loss, since_best
        self.best_step = self.trainer.step if is_best else self.best_step
        if self.world.is_first:
            bar.show(self.trainer.step, update, evaluation, samples)
            bar.warn_if_memorizing(self.evaluations_since_best, self.best_loss, self.best_step)
        self._snapshot(val_loss)  # before the save: a run that resumes there does not make it again
        is_needed = self._due(self.save_every) or self.trainer.step == self.before_decay
        if is_best or is_last or is_needed or stop.signal_number is not None:
            self.save(val_loss)
        if stop.signal_number is not None and self.saved_step == self.trainer.step:
            raise StoppedBySignal(stop.signal_number)

    def _ends_with(self, best_loss: float, evaluations_since_best: int) -> bool:
        if self.stop_at_val_loss is not None and best_loss <= self.stop_at_val_loss:
            return True
        gives_up = self.patience is not None and evaluations_since_best >= self.patience
        return gives_up or self.trainer.step >= self.n_steps

    def _validate(self) -> Validation:
        evaluation = self.validate()
        if not math.isfinite(evaluation.loss):
            raise not_finite(self.trainer.step, f"the validation loss is not finite ({evaluation.loss:g})")
        return evaluation

    @contextmanager
    def _only_shown(self, what: str) -> Iterator[None]:
        """Inside, a failure is a warning: what is merely shown does not end a run."""
        try:
            yield
        except (StoppedBySignal, LostProcessError):
            raise
        except Exception as error:
            with tqdm.external_write_mode():
                _log.warning("%s: not made (%s); the run continues", what, in_short(error))

    def _due(self, interval: int) -> bool:
        return self.trainer.step % interval == 0 or self.trainer.step == self.n_steps

    def _log(self, update: Update, evaluation: Validation | None) -> None:
        row = {
            "step": self.trainer.step,
            "tokens": self.tokens,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "train_loss": update.loss,
            **update.figures,
            **({} if evaluation is None else evaluation.to_row()),
            "learning_rate": update.learning_rate,
            "gradient_norm": update.gradient_norm,
            "tokens_per_second": round(update.tokens / update.seconds),
        }
        metrics.append_row(self.metrics_file, row)
        self.trackers.log(row)

    def save(self, val_loss: float | None, unreported: Update | None = None) -> None:
        """Write a checkpoint and delete those that are no longer needed.

        Raises NonFiniteError, and writes nothing, if a weight or a moment is NaN or infinite.
        """
        trainer = self.trainer
        moments, generators = optimizer_tensors(trainer.model, trainer.optimizers), rng_tensors(self.task.kept())
        checkpoint = self._checkpoint(moments, generators, val_loss, unreported)
        if self.world.is_first:
            self._write(checkpoint)
        self.saved_step = trainer.step

    def _snapshot(self, val_loss: float | None) -> None:
        """Save the weights, if this is a step to keep a snapshot of."""
        if self.trainer.step in self.snapshots_at:
            weights = self._checkpoint({}, {}, val_loss)
            if self.world.is_first:
                write_snapshot(self.run_dir, weights)

    def _checkpoint(
        self, moments: Tensors, generators: Tensors, val_loss: float | None, unreported: Update | None = None
    ) -> Checkpoint:
        """A checkpoint of the weights and counters of this step, with these moments and generators."""
        trainer, model = self.trainer, model_tensors(self.trainer.model)
        if (name := first_not_finite({**model, **moments})) is not None:
            raise not_finite(trainer.step, f"{name} is not finite: not saved")
        state = State(
            step=trainer.step,
            tokens=self.tokens,
            elapsed_seconds=self.elapsed_seconds,
            val_loss=val_loss,
            best_loss=self.best_loss if math.isfinite(self.best_loss) else None,
            best_step=self.best_step,
            evaluations_since_best=self.evaluations_since_best,
            unreported=None if unreported is None else Unreported(**metrics.finite(asdict(unreported))),
            grad_scaler=trainer.scaler.state_dict(),
            base_sha256=self.base_sha256,
            reward_sha256=self.reward_sha256,
            data_fingerprint=self.data_fingerprint,
            **self.environment(),  # type: ignore[arg-type]
        )
        return Checkpoint(model, moments, generators, state, self.config_yaml, self.tokenizer_json)

    def _write(self, checkpoint: Checkpoint) -> None:
        logs = [log for log in (self.metrics_file, self.samples_file) if log.exists()]
        for log in logs:  # the logs must be on disk before the checkpoint that refers to them
            fsync(log)
        seen = checkpoint.state.model_copy(update={"logs": {log.name: log_as_seen(log) for log in logs}})
        write_checkpoint(self.run_dir, replace(checkpoint, state=seen))
        (self.run_dir / NOT_SAVED_YET).unlink(missing_ok=True)
        keep_last_and_best(self.run_dir, self.keep_last, self.before_decay)

    def _append_samples(self, samples: Sequence[str]) -> None:
        quoted = "\n\n".join("> " + sample.replace("\n", "\n> ") for sample in samples)
        with self.samples_file.open("a", encoding="utf-8", newline="\n") as stream:
            stream.write(f"## After {self.trainer.step} steps\n\n{quoted}\n\n")
        self.trackers.log_samples(self.trainer.step, samples)

"""The life of a run: update, log, evaluate, write samples, save; stop when asked; resume as if nothing had happened.

It writes metrics.jsonl, samples.md, loss.png or rewards.png, and step directories (see `checkpoint/`).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pellucid import failpoints
from pellucid.checkpoint.step_directory import Checkpoint, step_name
from pellucid.errors import NonFiniteError
from pellucid.objectives.task import Validation
from pellucid.training.interrupts import StoppedBySignal, StopRequest, stop_requests
from pellucid.training.progress import Progress, Saver
from pellucid.training.progress_bar import ProgressBar
from pellucid.training.report import Report, warns_if_it_fails
from pellucid.training.timetable import Timetable
from pellucid.training.trainer import Trainer, Update, not_finite


@dataclass(eq=False, kw_only=True)
class Session:
    """A run: what makes the updates, when something is due, what is saved and what is told.

    `validate()` evaluates on validation text, `write_samples()` gives texts to show. All ranks do the same; the first
    alone writes files and speaks.
    """

    trainer: Trainer
    timetable: Timetable
    saver: Saver
    report: Report
    validate: Callable[[], Validation]
    write_samples: Callable[[], Sequence[str]]
    progress: Progress = field(default_factory=Progress)

    def restore(self, checkpoint: Checkpoint, where: str) -> None:
        """Restore the run from a checkpoint: counters, log files, weights, moments, random generators."""
        self.progress = self.saver.restore(checkpoint, where)

    def run(self) -> None:
        """Train to the last step. On Ctrl-C or SIGTERM, save and raise StoppedBySignal.

        Raises NonFiniteError, naming the last good checkpoint, before NaN or infinity gets into the weights.
        """
        n_reported = self.trainer.step - (self.progress.unreported is not None)
        try:
            with self.report.opened(self.timetable.n_steps, n_reported, self.timetable.log_every) as bar:
                with stop_requests(self.trainer.world) as stop, bar:
                    self._train(stop, bar)
                if self.trainer.world.is_first:
                    self.report.plot(self.trainer.step)
        except NonFiniteError as error:
            saved = self.saver.saved_step
            last = "nothing was saved yet" if saved is None else f"{step_name(saved)} is good"
            raise NonFiniteError(error.where, error.what, f"{error.fix}; {last}") from None

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended, by its steps or by early stopping, and its last update is reported."""
        progress = self.progress
        ends = self.timetable.ends(self.trainer.step, progress.best_loss, progress.evaluations_since_best)
        return progress.unreported is None and ends

    def _train(self, stop: StopRequest, bar: ProgressBar) -> None:
        progress = self.progress
        if progress.unreported is not None:
            self._report(progress.unreported, stop, bar)
            progress.unreported = None
        elif self.trainer.step == 0:
            self._snapshot_if_due(None)
        while not self.is_finished:
            failpoints.reached("update")
            update = self.trainer.update()
            progress.tokens += update.tokens
            progress.elapsed_seconds += update.seconds
            self._report(update, stop, bar)

    def _report(self, update: Update, stop: StopRequest, bar: ProgressBar) -> None:
        """Do whatever is due after an update: evaluate, write samples, log, save.

        A stop request comes first: the update is saved as it is, and the resumed run begins with its report.
        """
        step, table, progress = self.trainer.step, self.timetable, self.progress
        started = time.perf_counter()
        stop.agree()  # all ranks stop, or none
        try:
            with stop.ends_block():  # a signal ends it at once, since the resumed run can repeat it
                failpoints.reached("evaluate")
                evaluation = self._validate() if table.is_due(table.evaluate_every, step) else None
                val_loss = None if evaluation is None else evaluation.loss
                best_loss = min(progress.best_loss, math.inf if val_loss is None else val_loss)
                is_best = best_loss < progress.best_loss
                since_best = 0 if is_best else progress.evaluations_since_best + (val_loss is not None)
                is_last = table.ends(step, best_loss, since_best)
                samples: Sequence[str] = []
                if is_last or table.is_due(table.sample_every, step):
                    with warns_if_it_fails("samples"):
                        samples = self.write_samples()
        except StoppedBySignal:
            if self.saver.saved_step != step:
                self.saver.save(replace(progress, unreported=update), None)
            raise
        progress.elapsed_seconds += time.perf_counter() - started
        self.report.add_samples(step, samples)
        # A snapshot needs its point on the loss curve.
        if val_loss is not None or step in table.snapshots_at or table.is_due(table.log_every, step):
            self.report.add_row(step, update, evaluation, progress.tokens, progress.elapsed_seconds)
        progress.best_loss, progress.evaluations_since_best = best_loss, since_best
        progress.best_step = step if is_best else progress.best_step
        if self.trainer.world.is_first:
            bar.show(step, update, evaluation, samples)
            bar.warn_if_memorizing(since_best, best_loss, progress.best_step)
        self._snapshot_if_due(val_loss)  # before the save: a run that resumes there does not make it again
        is_needed = table.is_due(table.save_every, step) or step == table.before_decay
        if is_best or is_last or is_needed or stop.signal_number is not None:
            self.saver.save(replace(progress, unreported=None), val_loss)
        if stop.signal_number is not None and self.saver.saved_step == step:
            raise StoppedBySignal(stop.signal_number)

    def _validate(self) -> Validation:
        evaluation = self.validate()
        if not math.isfinite(evaluation.loss):
            raise not_finite(self.trainer.step, f"the validation loss is not finite ({evaluation.loss:g})")
        return evaluation

    def _snapshot_if_due(self, val_loss: float | None) -> None:
        if self.trainer.step in self.timetable.snapshots_at:
            self.saver.snapshot(replace(self.progress, unreported=None), val_loss)

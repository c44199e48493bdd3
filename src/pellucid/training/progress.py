"""How far a run has come, and how that is saved and restored with the weights (see `checkpoint/`)."""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

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
from pellucid.files import fsync
from pellucid.kernels.products import CHOSEN
from pellucid.objectives.task import Task
from pellucid.training import metrics
from pellucid.training.logs import cut_back_logs
from pellucid.training.trainer import Trainer, Update, not_finite
from pellucid.version import __version__


@dataclass
class Progress:
    """The counters of a run; the step itself is the trainer's.

    unreported: the last update, if a stop came before it was evaluated and logged.
    """

    tokens: int = 0
    elapsed_seconds: float = 0.0
    best_loss: float = math.inf
    best_step: int | None = None
    evaluations_since_best: int = 0
    unreported: Update | None = None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The sources of a run. Each checkpoint holds them, so it is complete, and a resumed run can be compared with it.

    base_sha256: of the frozen weights of another run, if it needs them; reward_sha256: of its reward model.
    """

    config_yaml: str
    tokenizer_json: str
    data_fingerprint: str
    base_sha256: str | None
    reward_sha256: str | None


class Saver:
    """Saves and restores a run in its folder. All ranks take part, as each has its share of the tensors."""

    def __init__(
        self, trainer: Trainer, task: Task, run_dir: Path, origin: Origin, keep_last: int, before_decay: int | None
    ) -> None:
        self.trainer, self.task, self.run_dir, self.origin = trainer, task, run_dir, origin
        self.keep_last, self.before_decay = keep_last, before_decay
        self.saved_step: int | None = None

    def restore(self, checkpoint: Checkpoint, where: str) -> Progress:
        """Restore weights, moments, random generators and log files; return the counters."""
        trainer, state = self.trainer, checkpoint.state
        load_training_state(trainer.model, trainer.optimizers, checkpoint, where)
        trainer.scaler.load_state_dict(state.grad_scaler)
        CHOSEN.update(state.products)
        self.task.restore(task_tensors(checkpoint.rng))
        trainer.step = self.saved_step = state.step
        unreported = None
        if state.unreported is not None:
            update = Update(**state.unreported.model_dump())
            unreported = replace(update, gradient_norm=math.inf) if update.gradient_norm is None else update
        if trainer.world.is_first:
            last_reported = state.step - (unreported is not None)
            cut_back_logs(self.run_dir, state, last_reported)
            discard_snapshots_after(self.run_dir, last_reported)
        best_loss = math.inf if state.best_loss is None else state.best_loss
        best = best_loss, state.best_step, state.evaluations_since_best
        return Progress(state.tokens, state.elapsed_seconds, *best, unreported)

    def save(self, progress: Progress, val_loss: float | None) -> None:
        """Write a checkpoint and delete those that are no longer needed.

        Raises NonFiniteError, and writes nothing, if a weight or a moment is NaN or infinite.
        """
        trainer = self.trainer
        moments, generators = optimizer_tensors(trainer.model, trainer.optimizers), rng_tensors(self.task.state())
        checkpoint = self._checkpoint(progress, val_loss, moments, generators)
        if trainer.world.is_first:
            self._write(checkpoint)
        self.saved_step = trainer.step

    def snapshot(self, progress: Progress, val_loss: float | None) -> None:
        """Save the weights alone."""
        weights = self._checkpoint(progress, val_loss, {}, {})
        if self.trainer.world.is_first:
            write_snapshot(self.run_dir, weights)

    def environment(self) -> dict[str, str | int]:
        """The six properties that must stay the same for a resumed run to be identical bit for bit."""
        return {
            "pellucid_version": __version__,
            "torch_version": torch.__version__,
            "device": str(self.trainer.precision.device),
            "dtype": str(self.trainer.precision.dtype),
            "threads": torch.get_num_threads(),
            "processes": self.trainer.world.size,
        }

    def _checkpoint(
        self, progress: Progress, val_loss: float | None, moments: Tensors, generators: Tensors
    ) -> Checkpoint:
        trainer, model, origin = self.trainer, model_tensors(self.trainer.model), self.origin
        if (name := first_not_finite({**model, **moments})) is not None:
            raise not_finite(trainer.step, f"{name} is not finite: not saved")
        unreported = progress.unreported
        state = State(
            step=trainer.step,
            tokens=progress.tokens,
            elapsed_seconds=progress.elapsed_seconds,
            val_loss=val_loss,
            best_loss=progress.best_loss if math.isfinite(progress.best_loss) else None,
            best_step=progress.best_step,
            evaluations_since_best=progress.evaluations_since_best,
            unreported=None if unreported is None else Unreported(**metrics.finite(asdict(unreported))),
            grad_scaler=trainer.scaler.state_dict(),
            base_sha256=origin.base_sha256,
            reward_sha256=origin.reward_sha256,
            products=dict(CHOSEN),
            data_fingerprint=origin.data_fingerprint,
            **self.environment(),  # type: ignore[arg-type]
        )
        return Checkpoint(model, moments, generators, state, origin.config_yaml, origin.tokenizer_json)

    def _write(self, checkpoint: Checkpoint) -> None:
        logs = [log for name in (METRICS, SAMPLES) if (log := self.run_dir / name).exists()]
        for log in logs:  # the logs must be on disk before the checkpoint that refers to them
            fsync(log)
        seen = checkpoint.state.model_copy(update={"logs": {log.name: log_as_seen(log) for log in logs}})
        write_checkpoint(self.run_dir, replace(checkpoint, state=seen))
        (self.run_dir / NOT_SAVED_YET).unlink(missing_ok=True)
        keep_last_and_best(self.run_dir, self.keep_last, self.before_decay)

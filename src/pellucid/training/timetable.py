"""When something is due in a run, and when the run ends: plain numbers, all from the config."""

from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.checkpoint.snapshots import snapshot_steps
from pellucid.config.training import CheckpointConfig, EvaluationConfig, SampleConfig, ScheduleConfig, TrainConfig
from pellucid.training.schedules import step_before_decay


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """A run of at most `n_steps`, with early stopping (Prechelt 1998).

    It stops when the validation loss reaches `stop_at_val_loss`, or has no new best in `patience` evaluations.
    """

    n_steps: int
    stop_at_val_loss: float | None
    patience: int | None
    # Intervals in steps. All four are also due at the last step.
    log_every: int
    evaluate_every: int
    sample_every: int
    save_every: int
    before_decay: int | None  # a step to save and keep, from which a longer run can go on
    snapshots_at: Sequence[int]  # steps whose weights are kept to look at

    def is_due(self, every: int, step: int) -> bool:
        return step % every == 0 or step == self.n_steps

    def ends(self, step: int, best_loss: float, evaluations_since_best: int) -> bool:
        if self.stop_at_val_loss is not None and best_loss <= self.stop_at_val_loss:
            return True
        gives_up = self.patience is not None and evaluations_since_best >= self.patience
        return gives_up or step >= self.n_steps


def build_timetable(
    train: TrainConfig,
    schedule: ScheduleConfig,
    evaluation: EvaluationConfig,
    sample: SampleConfig,
    checkpoint: CheckpointConfig,
) -> Timetable:
    return Timetable(
        n_steps=train.steps,
        stop_at_val_loss=evaluation.stop_at_val_loss,
        patience=evaluation.early_stopping_patience,
        log_every=train.log_every_steps,
        evaluate_every=evaluation.every_steps,
        sample_every=sample.every_steps,
        save_every=checkpoint.every_steps,
        before_decay=step_before_decay(schedule, train.steps),
        snapshots_at=snapshot_steps(train.steps, checkpoint.snapshots),
    )

"""The report of a run while it trains: a progress bar, metrics.jsonl, samples.md, figures, trackers."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from pellucid.checkpoint.step_directory import METRICS, SAMPLES
from pellucid.errors import LostProcessError, in_short
from pellucid.objectives.task import Validation
from pellucid.training import metrics
from pellucid.training.interrupts import StoppedBySignal
from pellucid.training.progress_bar import ProgressBar
from pellucid.training.trackers import Trackers
from pellucid.training.trainer import Update

_log = logging.getLogger(__name__)


class Report:
    """The report of a run named `name`, in its folder. Of several ranks, only the first one's report `is_shown`.

    figure: loss.png or rewards.png; floor: the least possible loss, if known.
    """

    def __init__(
        self, run_dir: Path, name: str, figure: str, floor: float | None, trackers: Trackers, *, is_shown: bool
    ) -> None:
        self.run_dir, self.name, self.figure = run_dir, name, run_dir / figure
        self.floor, self.trackers, self.is_shown = floor, trackers, is_shown
        self.metrics_file, self.samples_file = run_dir / METRICS, run_dir / SAMPLES

    @contextmanager
    def opened(self, n_steps: int, n_reported: int, log_every: int) -> Iterator[ProgressBar]:
        """Inside, the trackers are open; gives the bar. `n_reported` updates have been reported already."""
        bar = ProgressBar(n_steps, n_reported, self.floor, is_shown=self.is_shown, log_every=log_every)
        if self.is_shown:
            metrics.warn_of_damage(self.metrics_file)
        with self.trackers.opened(n_reported + 1, metrics.read_rows(self.metrics_file)):
            yield bar

    def add_samples(self, step: int, samples: Sequence[str]) -> None:
        if samples and self.is_shown:
            quoted = "\n\n".join("> " + sample.replace("\n", "\n> ") for sample in samples)
            with self.samples_file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(f"## After {step} steps\n\n{quoted}\n\n")
            self.trackers.log_samples(step, samples)

    def add_row(
        self, step: int, update: Update, evaluation: Validation | None, tokens: int, elapsed_seconds: float
    ) -> None:
        """Add a row to metrics.jsonl. tokens, elapsed_seconds: of the run so far."""
        if not self.is_shown:
            return
        row = {
            "step": step,
            "tokens": tokens,
            "elapsed_seconds": round(elapsed_seconds, 3),
            "train_loss": update.loss,
            **update.figures,
            **({} if evaluation is None else evaluation.to_row()),
            "learning_rate": update.learning_rate,
            "gradient_norm": update.gradient_norm,
            "tokens_per_second": round(update.tokens / update.seconds),
        }
        metrics.append_row(self.metrics_file, row)
        self.trackers.log(row)

    def plot(self, step: int) -> None:
        """Draw loss.png or rewards.png from metrics.jsonl, and skills.png where the truth is known."""
        with warns_if_it_fails("figures"):
            from pellucid.training import plots  # takes a second: matplotlib

            rows = metrics.read_rows(self.metrics_file)
            if self.figure.name == "rewards.png":
                figures = {"rewards.png": plots.rewards_figure(rows, f"{self.name}: what its answers are worth")}
            else:
                figures = {"loss.png": plots.loss_figure(rows, self.floor, self.name)}
            if any("skills" in row for row in rows):
                figures["skills.png"] = plots.skills_figure(rows, self.name)
            for name, figure in figures.items():
                plots.save_figure(figure, self.run_dir / name)
                self.trackers.log_figure(step, self.run_dir / name)


@contextmanager
def warns_if_it_fails(what: str) -> Iterator[None]:
    """Inside, a failure is a warning: what is merely shown does not end a run."""
    try:
        yield
    except (StoppedBySignal, LostProcessError):
        raise
    except Exception as error:
        with tqdm.external_write_mode():
            _log.warning("%s: not made (%s); the run continues", what, in_short(error))

"""The progress bar of a run: losses and samples as they come, and the time left."""

import logging
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from tqdm import tqdm
from typing_extensions import Self

from pellucid.cost.step_time import duration
from pellucid.objectives.task import Validation
from pellucid.training.trainer import Update

_log = logging.getLogger(__name__)

CHARACTERS_TO_SHOW = 100  # of a sample
SECONDS_TO_JUDGE = 5.0  # of updates, before the time left is estimated
RECENT_UPDATES = 20  # whose mean speed is shown: one alone says little
SECONDS_BETWEEN_LINES = 10.0  # in a log file
EVALUATIONS_TO_WARN = 3  # this many in a row without a new best are hardly chance


class ProgressBar:
    """A progress bar of one step per reported update; `floor` is the least possible loss, if known.

    In a log file, where a bar cannot be redrawn, it is a line every few seconds, at a step that is logged.
    """

    def __init__(self, n_steps: int, n_reported: int, floor: float | None, *, is_shown: bool, log_every: int) -> None:
        self._n_steps, self._floor, self._log_every = n_steps, floor, log_every
        self._is_shown = is_shown and sys.stderr is not None
        self._bar = tqdm(
            total=n_steps,
            initial=n_reported,
            unit="step",
            mininterval=0.5,
            dynamic_ncols=True,
            disable=not (self._is_shown and sys.stderr.isatty()),
        )
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT_UPDATES)  # their tokens and seconds
        self._said_at = -math.inf
        self._seconds: list[float] = []  # of the first updates
        self._has_said_pace = self._has_warned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, step: int, update: Update, evaluation: Validation | None, samples: Sequence[str]) -> None:
        """Show an update, with its evaluation and samples, if any."""
        self._recent.append((update.tokens, update.seconds))
        tokens, seconds = map(sum, zip(*self._recent, strict=True))
        figures = {
            "loss": f"{update.loss:.3f}",
            **({} if self._floor is None else {"floor": f"{self._floor:.3f}"}),
            "lr": f"{update.learning_rate:.1e}",
            "tokens/s": f"{tokens / max(seconds, 1e-9):,.0f}",
        }
        self._bar.set_postfix(figures, refresh=False)
        self._bar.update()
        is_due = step % self._log_every == 0 and time.monotonic() - self._said_at > SECONDS_BETWEEN_LINES
        if self._bar.disable and (is_due or step == self._n_steps):
            self._said_at = time.monotonic()
            line = ", ".join(f"{name} {figure}" for name, figure in figures.items())
            self._write(f"step {step}/{self._n_steps}: {line}")
        if evaluation is not None:
            self._write(f"step {step}: {evaluation.brief()}")
        if samples:
            sample = " ".join(samples[0].split())
            beginning = sample if len(sample) <= CHARACTERS_TO_SHOW else sample[:CHARACTERS_TO_SHOW] + "…"
            self._write(f"step {step}: it writes “{beginning}”")
        self._say_pace(update.seconds, self._n_steps - step)

    def _say_pace(self, seconds: float, n_left: int) -> None:
        """Print the speed and the time left, once, after the first updates (the very first takes longer)."""
        if self._has_said_pace:
            return
        self._seconds.append(seconds)
        if sum(self._seconds[1:]) < SECONDS_TO_JUDGE:
            return
        self._has_said_pace = True
        seconds_each = statistics.median(self._seconds)
        if (left := seconds_each * n_left) > SECONDS_TO_JUDGE:
            self._write(f"{1 / seconds_each:.1f} steps a second: about {duration(round(left))} to go")

    def warn_if_memorizing(self, evaluations_since_best: int, best_loss: float, best_step: int | None) -> None:
        """Warn, once, when the validation loss has not fallen for some evaluations."""
        if evaluations_since_best >= EVALUATIONS_TO_WARN and not self._has_warned:
            self._has_warned = True
            what = "validation loss no longer falls: its best is %.4f, at step %s; the model may be memorizing its text"
            with tqdm.external_write_mode(file=sys.stderr):
                _log.warning(what, best_loss, best_step)

    def _write(self, line: str) -> None:
        if self._is_shown:
            with suppress(OSError):  # the terminal may be gone, and the run goes on
                self._bar.write(line, file=sys.stderr)

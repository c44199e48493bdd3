"""The progress bar of a run: losses and samples as they come, and the time left."""

import logging
import math
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
            bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            mininterval=0.5,
            dynamic_ncols=True,
            disable=not (self._is_shown and sys.stderr.isatty()),
        )
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT_UPDATES)  # their tokens and seconds
        self._said_at = -math.inf
        self._has_warned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, step: int, update: Update, evaluation: Validation | None, samples: Sequence[str]) -> None:
        """Show an update, with its evaluation and samples, if any."""
        self._recent.append((update.tokens, update.seconds))
        tokens, seconds = map(sum, zip(*self._recent, strict=True))
        loss = f"loss {update.loss:.3f}" + ("" if self._floor is None else f", floor {self._floor:.3f}")
        speed = f"{tokens / max(seconds, 1e-9):,.0f} tokens/s"
        self._bar.set_description_str(loss, refresh=False)
        self._bar.set_postfix_str(speed, refresh=False)
        self._bar.update()
        is_due = step % self._log_every == 0 and time.monotonic() - self._said_at > SECONDS_BETWEEN_LINES
        if self._bar.disable and (is_due or step == self._n_steps):
            self._said_at = time.monotonic()
            left = duration(seconds / len(self._recent) * (self._n_steps - step))
            self._write(f"step {step}/{self._n_steps}: {loss}, {speed}" + f", {left} to go" * (step < self._n_steps))
        if evaluation is not None:
            self._write(f"step {step}: {evaluation.brief()}")
        if samples:
            text = " ".join(samples[0].split())
            self._write(f"step {step}: it writes “{text[:CHARACTERS_TO_SHOW]}{'…' * (len(text) > CHARACTERS_TO_SHOW)}”")

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

"""Trackers get the rows of metrics.jsonl, the samples and the figures as they come (see tracker_programs.py).

A run never depends on them: one that fails is switched off with a warning, and training goes on.
"""

import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from tqdm import tqdm
from typing_extensions import assert_never

from pellucid.config.yaml_source import parse_yaml
from pellucid.errors import ConfigError, in_short
from pellucid.runtime.distributed import World
from pellucid.training.metrics import Row

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A program that shows a run while it trains. Any method may raise.

    next_step: the first one that it has not received, whichever earlier processes of the run were killed.
    """

    next_step: int

    def log(self, row: Row) -> None:
        """Record a row of metrics.jsonl."""

    def log_samples(self, step: int, samples: Sequence[str]) -> None:
        """Record texts that the model wrote after `step`."""

    def log_figure(self, step: int, file: Path) -> None:
        """Record a figure (loss.png, skills.png, rewards.png) at the end of the run."""

    def close(self) -> None:
        """Send everything still pending, and close."""


class Trackers:
    """All trackers of a run, each opened by a function of the first step that it will receive."""

    def __init__(self, openers: Mapping[str, Callable[[int], Tracker]]) -> None:
        self._openers = openers
        self._open: dict[str, Tracker] = {}

    @contextmanager
    def opened(self, first_step: int, rows: Sequence[Row]) -> Iterator[None]:
        """Inside, all trackers are open; each first receives the rows before `first_step` that it lacks."""
        for name, opener in self._openers.items():
            with self._switched_off_if_it_fails(name):
                self._open[name] = opener(first_step)
        for row in rows:
            self.log(row)
        try:
            yield
        finally:
            self._each(lambda tracker: tracker.close())
            self._open.clear()

    def log(self, row: Row) -> None:
        self._each(lambda tracker: tracker.log(row) if row["step"] >= tracker.next_step else None)

    def log_samples(self, step: int, samples: Sequence[str]) -> None:
        self._each(lambda tracker: tracker.log_samples(step, samples))

    def log_figure(self, step: int, file: Path) -> None:
        self._each(lambda tracker: tracker.log_figure(step, file))

    def _each(self, show: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            with self._switched_off_if_it_fails(name):
                show(tracker)

    @contextmanager
    def _switched_off_if_it_fails(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever another package raises must not end the training
            self._open.pop(name, None)
            with tqdm.external_write_mode():
                _log.warning("trackers: %s failed (%s) and is switched off; the run continues", name, in_short(error))


def build_trackers(
    names: Sequence[Literal["tensorboard", "wandb"]], run_dir: Path, run_name: str, config_yaml: str, world: World
) -> Trackers:
    """The run's trackers, not opened yet; none on any rank but the first."""

    def opened(name: Literal["tensorboard", "wandb"], first_step: int) -> Tracker:
        from pellucid.training.tracker_programs import TensorBoard, WeightsAndBiases

        match name:
            case "tensorboard":
                return TensorBoard(run_dir, config_yaml, first_step)
            case "wandb":
                return WeightsAndBiases(run_dir, run_name, parse_yaml(config_yaml, "config.yaml")[0])
            case _:
                assert_never(name)

    return Trackers({name: partial(opened, name) for name in names} if world.is_first else {})


def require_installed(names: Sequence[str]) -> None:
    """Raise ConfigError for the first tracker whose package is missing, before anything is trained."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            fix = f"pip install 'pellucid[{name}]', or leave it out"
            raise ConfigError("trackers", f"{name} is not installed", fix)

"""TensorBoard and Weights & Biases: shown the rows of metrics.jsonl, the samples and the figures, as they are written.

A run never depends on its trackers: one that fails is switched off with a warning, and what is trained stays the same.
"""

from __future__ import annotations

import importlib.util
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from pellucid.errors import ConfigError
from pellucid.training.metrics import Row, finite

_log = logging.getLogger(__name__)

MOST_SECONDS = 60  # that a run waits for wandb.ai


class Tracker(Protocol):
    """Where a run is shown while it goes. Any method may raise.

    next_step: the first one that it has not been shown, whatever earlier processes of the run were killed.
    """

    next_step: int

    def log(self, row: Row) -> None:
        """Shows a row of metrics.jsonl."""

    def log_samples(self, step: int, samples: Sequence[str]) -> None:
        """Shows what the model writes after `step`."""

    def log_figure(self, step: int, file: Path) -> None:
        """Shows loss.png or skills.png, when the run has ended."""

    def close(self) -> None:
        """Delivers what is still on its way."""


class Trackers:
    """All trackers of a run, each opened by a function of the first step that it will be shown."""

    def __init__(self, openers: Mapping[str, Callable[[int], Tracker]]) -> None:
        self._openers = openers
        self._open: dict[str, Tracker] = {}

    @contextmanager
    def opened(self, first_step: int, rows: Sequence[Row]) -> Iterator[None]:
        """Opens all, shows each the rows before `first_step` that it lacks, and closes them however the run ends."""
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
        except Exception as error:  # whatever a foreign package may raise: training is worth more
            self._open.pop(name, None)
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
            with tqdm.external_write_mode():
                _log.warning("trackers: %s failed (%s) and is switched off; the run goes on", name, reason)


class TensorBoard:
    """Event files in RUN/tensorboard, for `tensorboard --logdir checkpoints`.

    A resumed run shows again what the killed one did after its last checkpoint; `purge_step` hides the first showing.
    """

    def __init__(self, run_dir: Path, config_yaml: str, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # needs the package tensorboard

        folder = run_dir / "tensorboard"
        self.next_step = first_step if folder.exists() else 0
        self._writer = SummaryWriter(str(folder), purge_step=first_step)
        self._writer.add_text("config", _as_code(config_yaml), first_step)
        self._writer.flush()

    def log(self, row: Row) -> None:
        for name, number in numbers(row).items():
            self._writer.add_scalar(name, number, row["step"])
        self._writer.flush()  # no kill after it loses this row

    def log_samples(self, step: int, samples: Sequence[str]) -> None:
        self._writer.add_text("samples", "\n\n".join(map(_as_code, samples)), step)
        self._writer.flush()

    def log_figure(self, step: int, file: Path) -> None:
        from matplotlib.image import imread

        self._writer.add_image(file.stem, imread(file), step, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run at wandb.ai, or with WANDB_MODE=offline in RUN/wandb, to be uploaded by `wandb sync`.

    Its id is kept in RUN/wandb/run_id, so that a resumed run continues the same curves. A kill loses what was on its
    way to the server, or to the disk; `starting_step` says from where.
    """

    def __init__(self, run_dir: Path, name: str, config: Mapping[str, Any]) -> None:
        import wandb

        self._wandb = wandb
        id_file = run_dir / "wandb" / "run_id"
        id_file.parent.mkdir(exist_ok=True)
        if not id_file.exists():
            id_file.write_text(secrets.token_hex(4), encoding="utf-8")
        self._run = wandb.init(
            project="pellucid",
            name=name,
            id=id_file.read_text(encoding="utf-8"),
            resume="allow",
            dir=str(run_dir),
            config=dict(config),
            # By default it reads all that goes to the terminal, and waits for a key and for the network without end.
            settings=wandb.Settings(console="off", login_timeout=MOST_SECONDS, finish_timeout=MOST_SECONDS),
        )

        self.next_step: int = self._run.starting_step

    def log(self, row: Row) -> None:
        self._run.log(numbers(row), step=row["step"], commit=True)

    def log_samples(self, step: int, samples: Sequence[str]) -> None:
        table = self._wandb.Table(columns=["sample"], data=[[sample] for sample in samples])
        self._run.log({"samples": table}, step=step, commit=False)

    def log_figure(self, step: int, file: Path) -> None:
        self._run.summary[file.stem] = self._wandb.Image(str(file), caption=f"after {step:,} steps")

    def close(self) -> None:
        self._run.finish()


def require_installed(names: Sequence[str]) -> None:
    """Raises ConfigError for the first tracker whose package is missing, before anything is trained."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            fix = f"pip install 'pellucid[{name}]', or leave it out"
            raise ConfigError("trackers", f"{name} is not installed", fix)


def numbers(row: Row) -> dict[str, float]:
    """Every number of a row by its name; inner ones as `skills/recall/accuracy` and `expert_load/0/3`."""
    named: dict[str, float] = {}
    for name, value in finite(row).items():
        if isinstance(value, list):
            value = {str(i): each for i, each in enumerate(value)}
        if isinstance(value, dict):
            named |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, int | float):
            named[name] = value
    return named


def _as_code(text: str) -> str:
    """Text as a block of code of Markdown, which TensorBoard would otherwise set as it likes."""
    return "\n".join("    " + line for line in text.split("\n"))

"""TensorBoard and Weights & Biases, which get the rows of metrics.jsonl, the samples and the figures as they come.

A run never depends on its trackers: one that fails is switched off with a warning, and training goes on.
"""

import importlib.util
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from tqdm import tqdm
from typing_extensions import assert_never

from pellucid.config.yaml_source import parse_yaml
from pellucid.errors import ConfigError, in_short
from pellucid.runtime.distributed import World
from pellucid.training.metrics import Row, finite

_log = logging.getLogger(__name__)

MOST_SECONDS = 60  # to wait for wandb.ai


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


class TensorBoard:
    """Event files in RUN/tensorboard, for `tensorboard --logdir checkpoints`.

    A resumed run repeats the rows after its last checkpoint; `purge_step` hides those of the killed one.
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

    Its id is stored in RUN/wandb/run_id, so that a resumed run continues the same curves. A kill loses rows that were
    not yet sent or written; `starting_step` is the first of them.
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
            # By default it captures the terminal, and waits for a key and for the network forever.
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


def build_trackers(
    names: Sequence[Literal["tensorboard", "wandb"]], run_dir: Path, run_name: str, config_yaml: str, world: World
) -> Trackers:
    """The run's trackers, not opened yet; none on any rank but the first."""

    def opened(name: Literal["tensorboard", "wandb"], first_step: int) -> Tracker:
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


def numbers(row: Row) -> dict[str, float]:
    """Every number of a row by its name; nested ones as `skills/recall/accuracy` and `expert_load/0/3`."""
    named: dict[str, float] = {}
    for name, value in finite(row).items():
        if isinstance(value, list):
            value = {str(i): number for i, number in enumerate(value)}
        if isinstance(value, dict):
            named |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, int | float):
            named[name] = value
    return named


def _as_code(text: str) -> str:
    """Text as a Markdown code block, so that TensorBoard does not reflow it."""
    return "\n".join("    " + line for line in text.split("\n"))

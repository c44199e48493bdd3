"""TensorBoard and Weights & Biases as trackers of a run."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pellucid.training.metrics import Row, finite

MOST_SECONDS = 60  # to wait for wandb.ai


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

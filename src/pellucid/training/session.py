"""The life of a run: update, log, evaluate, write samples, save; stop when asked; go on later as if nothing had been.

What a run leaves in its folder: metrics.jsonl, samples.md, loss.png and its step directories (see `checkpoint/`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pellucid.checkpoint.run_directory import keep_last_and_best
from pellucid.checkpoint.step_directory import Checkpoint, write_checkpoint
from pellucid.checkpoint.training_state import (
    load_model_tensors,
    load_optimizer_tensors,
    load_rng_tensors,
    model_tensors,
    optimizer_tensors,
    rng_tensors,
)
from pellucid.training import metrics
from pellucid.training.interrupts import StoppedBySignal, StopRequest, stop_requests
from pellucid.training.plots import plot_loss
from pellucid.training.trainer import Trainer, Update


@dataclass(frozen=True)
class Intervals:
    """Every how many steps each thing happens. All of them happen at the last step too."""

    log: int
    evaluate: int
    sample: int
    save: int


class Session:
    """Drives a Trainer to `n_steps`.

    `validate()` gives the validation loss in nats per token, `write_samples()` texts to show. The config, the tokenizer
    and the data's fingerprint go into each checkpoint, so that it stands alone and a resumed run can be compared.
    """

    def __init__(
        self,
        trainer: Trainer,
        run_dir: Path,
        *,
        name: str,
        n_steps: int,
        intervals: Intervals,
        keep_last: int,
        floor: float | None,
        validate: Callable[[], float],
        write_samples: Callable[[], Sequence[str]],
        config_yaml: str,
        tokenizer_json: str,
        data_fingerprint: str,
    ) -> None:
        self.trainer, self.run_dir, self.name = trainer, run_dir, name
        self.n_steps, self.intervals, self.keep_last, self.floor = n_steps, intervals, keep_last, floor
        self.validate, self.write_samples = validate, write_samples
        self.config_yaml, self.tokenizer_json = config_yaml, tokenizer_json
        self.data_fingerprint = data_fingerprint
        self.tokens, self.elapsed_seconds = 0, 0.0
        self.best_loss = float("inf")

    def restore(self, checkpoint: Checkpoint, where: str) -> None:
        """Puts the run back to the moment of the checkpoint: weights, moments, generators, counters, log files."""
        trainer, state = self.trainer, checkpoint.state
        load_model_tensors(trainer.model, checkpoint.model, where)
        load_optimizer_tensors(trainer.model, trainer.optimizers, checkpoint.optimizer)
        trainer.scaler.load_state_dict(state["grad_scaler"])
        trainer.step, self.tokens = state["step"], state["tokens"]
        self.elapsed_seconds, self.best_loss = state["elapsed_seconds"], state["best_loss"] or float("inf")
        metrics.cut_back(self.run_dir / "metrics.jsonl", trainer.step)
        _cut_back_samples(self.run_dir / "samples.md", trainer.step)
        load_rng_tensors(checkpoint.rng)

    def run(self) -> None:
        """Trains to the last step. On Ctrl-C or SIGTERM saves first and raises StoppedBySignal."""
        with stop_requests() as stop, self._progress_bar() as bar:
            while self.trainer.step < self.n_steps:
                self._one_step(stop, bar)
                if stop.signal_number is not None:
                    raise StoppedBySignal(stop.signal_number, self.trainer.step)
        self.plot()

    def plot(self) -> None:
        """Draws loss.png from metrics.jsonl."""
        rows = metrics.read_rows(self.run_dir / "metrics.jsonl")
        plot_loss(rows, self.floor, f"{self.name}: loss while training", self.run_dir / "loss.png")

    def _one_step(self, stop: StopRequest, bar: tqdm[Any]) -> None:
        started = time.perf_counter()
        update = self.trainer.update()
        update_seconds = time.perf_counter() - started
        self.tokens += update.tokens
        val_loss = self.validate() if self._due(self.intervals.evaluate) else None
        if self._due(self.intervals.sample):
            self._append_samples(self.write_samples())
        self.elapsed_seconds += time.perf_counter() - started
        if val_loss is not None or self._due(self.intervals.log):
            self._log(update, val_loss, update.tokens / update_seconds)
        self._show(bar, update, val_loss)
        is_best = val_loss is not None and val_loss < self.best_loss
        self.best_loss = min(self.best_loss, val_loss if val_loss is not None else float("inf"))
        if is_best or self._due(self.intervals.save) or stop.signal_number is not None:
            self._save(val_loss)

    def _due(self, interval: int) -> bool:
        return self.trainer.step % interval == 0 or self.trainer.step == self.n_steps

    def _log(self, update: Update, val_loss: float | None, tokens_per_second: float) -> None:
        row = {
            "step": self.trainer.step,
            "tokens": self.tokens,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "train_loss": update.loss,
            **({} if val_loss is None else {"val_loss": val_loss}),
            "learning_rate": update.learning_rate,
            "gradient_norm": update.gradient_norm,
            "tokens_per_second": round(tokens_per_second),
        }
        metrics.append_row(self.run_dir / "metrics.jsonl", row)

    def _save(self, val_loss: float | None) -> None:
        trainer = self.trainer
        state = {
            "step": trainer.step,
            "tokens": self.tokens,
            "elapsed_seconds": self.elapsed_seconds,
            "val_loss": val_loss,
            "best_loss": None if self.best_loss == float("inf") else self.best_loss,
            "grad_scaler": trainer.scaler.state_dict(),
            "data_fingerprint": self.data_fingerprint,
            # Where bitwise equality of a resumed run is promised: the same of these four.
            "torch_version": torch.__version__,
            "device": str(trainer.precision.device),
            "dtype": str(trainer.precision.dtype),
            "threads": torch.get_num_threads(),
        }
        checkpoint = Checkpoint(
            model=model_tensors(trainer.model),
            optimizer=optimizer_tensors(trainer.model, trainer.optimizers),
            rng=rng_tensors(),
            state=state,
            config_yaml=self.config_yaml,
            tokenizer_json=self.tokenizer_json,
        )
        write_checkpoint(self.run_dir, trainer.step, checkpoint)
        keep_last_and_best(self.run_dir, self.keep_last)

    def _progress_bar(self) -> tqdm[Any]:
        return tqdm(total=self.n_steps, initial=self.trainer.step, unit="step", mininterval=0.5, dynamic_ncols=True)

    def _show(self, bar: tqdm[Any], update: Update, val_loss: float | None) -> None:
        rate = bar.format_dict["rate"] or 0.0
        figures = {
            "loss": f"{update.loss:.3f}",
            **({} if self.floor is None else {"floor": f"{self.floor:.3f}"}),
            "lr": f"{update.learning_rate:.1e}",
            "tokens/s": f"{update.tokens * rate:,.0f}",
        }
        bar.set_postfix(figures, refresh=False)
        bar.update()
        if val_loss is not None:
            bar.write(f"step {self.trainer.step}: validation loss {val_loss:.4f} nats/token", file=bar.fp)

    def _append_samples(self, samples: Sequence[str]) -> None:
        quoted = "\n\n".join("> " + sample.replace("\n", "\n> ") for sample in samples)
        with (self.run_dir / "samples.md").open("a", encoding="utf-8") as stream:
            stream.write(f"{_heading(self.trainer.step)}\n\n{quoted}\n\n")


def _heading(step: int) -> str:
    return f"## After {step} steps"


def _cut_back_samples(file: Path, step: int) -> None:
    """Drops the samples written after `step`, which the resumed run will write again."""
    if not file.exists():
        return
    kept: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        words = line.split()
        if line.startswith("## After ") and len(words) == 4 and words[2].isdecimal() and int(words[2]) > step:
            break
        kept.append(line)
    file.write_text("".join(kept), encoding="utf-8")

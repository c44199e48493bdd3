"""What a run of an experiment found, its file, and the table of all runs: results.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from pellucid.config.base import Section
from pellucid.experiments.plan import PlannedRun
from pellucid.files import written_whole

RESULT_FILE = "result.json"

Row = dict[str, Any]


class RunResult(Section):
    """One finished run, as its result.json holds it.

    label: the variant (what tables and figures call it); overrides: the dotted keys in which the variants differ.
    flops: all training; tokens: read in training. Losses are nats per token over the whole validation part.
    skills: excess (nats per document) and accuracy of each skill, where the truth is known.
    curve: the rows of metrics.jsonl that hold a val_loss.
    contexts: excess or, where no truth is known, loss at other context lengths, as pairs (length, nats per token).
    gradient_norms: of each block at the first step, first block first.
    """

    label: str
    seed: int
    overrides: dict[str, Any]
    parameters: int
    non_embedding_parameters: int
    flops: float
    tokens: int
    seconds: float
    val_loss: float
    bits_per_byte: float
    floor: float | None
    excess: float | None
    skills: dict[str, dict[str, float | None]] = Field({})
    curve: list[Row] = Field([])
    contexts: list[tuple[int, float]] = Field([], strict=False)
    gradient_norms: list[float] = Field([])

    @property
    def excess_fraction(self) -> float | None:
        """The excess as a share of the floor."""
        return self.excess / self.floor if self.excess is not None and self.floor else None


def by_variant(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Runs by label, in order of first appearance; those of a label differ in their seed."""
    variants: dict[str, list[RunResult]] = {}
    for result in results:
        variants.setdefault(result.label, []).append(result)
    return variants


@dataclass(frozen=True)
class Failure:
    """Why a run has no result: its error in one line, and the exit code that belongs to it."""

    error: str
    exit_code: int

    @property
    def message(self) -> str:
        """The error, without the place of the current folder on this machine."""
        return self.error.replace(str(Path.cwd()), "the current folder")


class FinishedRun(Section):
    """What result.json holds: the run that was asked for, and what it found."""

    run: PlannedRun
    result: RunResult


def read_result(run_dir: Path, run: PlannedRun) -> RunResult | None:
    """What the run in this folder found; None unless it is finished, with the planned config and measures.

    What else the experiment varies may have changed since.
    """
    try:
        finished = FinishedRun.model_validate_json((run_dir / RESULT_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    if (finished.run.config, finished.run.measures) != (run.config, run.measures):
        return None
    return finished.result.model_copy(update={"label": run.label, "overrides": run.overrides})


def write_result(run_dir: Path, run: PlannedRun, result: RunResult) -> None:
    """Writes result.json: after this the run is finished."""
    write_whole(run_dir / RESULT_FILE, FinishedRun(run=run, result=result).model_dump_json(indent=1) + "\n")


def write_whole(file: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with written_whole(file) as draft:
        draft.write_text(text, encoding="utf-8")


def results_csv(runs: Sequence[PlannedRun], outcomes: Sequence[RunResult | Failure]) -> str:
    """The table of an experiment, one row per planned run, for a spreadsheet or pandas.

    Repeated on the same machine, it differs only in `seconds`.
    """
    varied_keys = dict.fromkeys(key for run in runs for key in run.overrides)
    found = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    numbers = dict.fromkeys(name for result in found for name in numbers_of(result))
    columns = dict.fromkeys(["label", "seed", *varied_keys, *numbers, "status"])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    for run, outcome in zip(runs, outcomes, strict=True):
        writer.writerow({name: _cell(value) for name, value in _row(run, outcome).items()})
    return text.getvalue()


def _row(run: PlannedRun, outcome: RunResult | Failure) -> Row:
    asked = {"label": run.label, "seed": run.seed, **run.overrides}
    if isinstance(outcome, Failure):
        return {**asked, "status": f"failed: {outcome.message}"}
    return {**asked, **numbers_of(outcome), "status": "done"}


def numbers_of(result: RunResult) -> dict[str, float | None]:
    """Every number of a run by its column in results.csv; what is not known is None."""
    names = ("parameters", "non_embedding_parameters", "flops", "tokens", "seconds", "val_loss", "floor", "excess")
    return {
        **{name: getattr(result, name) for name in names},
        "excess_fraction": result.excess_fraction,
        "bits_per_byte": result.bits_per_byte,
        **{f"excess.{skill}": found.get("excess_nats_per_document") for skill, found in result.skills.items()},
        **{f"accuracy.{skill}": found.get("accuracy") for skill, found in result.skills.items()},
        **{f"contexts.{length}": value for length, value in result.contexts},
    }


def _cell(value: Any) -> Any:
    """A section of the config in one cell, as JSON; numbers as exactly as Python writes them."""
    return json.dumps(value) if isinstance(value, (dict, list, bool)) else value

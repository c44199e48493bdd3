"""The result of a run of an experiment, or its failure, and result.json."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from pellucid.config.base import Section
from pellucid.experiments.plan import PlannedRun
from pellucid.files import write_whole

RESULT_FILE = "result.json"

Row = dict[str, Any]
Skills = dict[str, dict[str, float | None]]  # figures of each skill, as `evaluation/skills.py` names them


class RunResult(Section):
    """The result of one finished run.

    label: the variant, as tables and figures name it; overrides: the dotted keys in which the variants differ.
    flops: of the whole training; tokens: read in training. Losses are nats per token over the whole validation part.
    left_to_learn, impossible: as in `evaluation/loss.py`; None also in results that are older than these figures.
    skills: excess (nats per document) and accuracy of each skill, where the truth is known.
    curve: the rows of metrics.jsonl with an evaluation; without val_loss, unless that was the loss of text.
    texts: excess and accuracy of each skill on other texts, by the text's name.
    answers: figures of the answers to held-out instructions (see evaluation/answers.py), by name.
    trained_parameters: for a run that starts from another, all or those of its adapter.
    measured: what the experiment's own `measure` returns (see own_code.py).
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
    bits_per_byte: float | None
    floor: float | None
    excess: float | None
    left_to_learn: float | None = None
    impossible: float | None = None
    skills: Skills = Field({})
    curve: list[Row] = Field([])
    texts: dict[str, Skills] = Field({})
    answers: dict[str, float | None] = Field({})
    trained_parameters: int | None = None
    measured: dict[str, Any] = Field({})

    @property
    def excess_fraction(self) -> float | None:
        """The excess as a share of the floor."""
        return self.excess / self.floor if self.excess is not None and self.floor else None

    @property
    def half_right(self) -> dict[str, int | None]:
        """The step of the first evaluation at which half of a skill's cases were right, by skill; None if never.

        Empty if they were evaluated only at the end. Models learn a skill suddenly, at a random time: a mean at a fixed
        step would hide that.
        """
        rows = [row for row in self.curve if "skills" in row]
        skills = self.skills if rows else {}
        return {skill: next((row["step"] for row in rows if _is_half_right(row, skill)), None) for skill in skills}


def _is_half_right(row: Row, skill: str) -> bool:
    accuracy = row["skills"].get(skill, {}).get("accuracy")  # None if no token of it was certain
    return accuracy is not None and accuracy >= 0.5


@dataclass(frozen=True)
class Failure:
    """A failed run: its error in one line, and its exit code."""

    error: str
    exit_code: int

    @property
    def message(self) -> str:
        """The error, without the path of the current folder."""
        return self.error.replace(str(Path.cwd()), "the current folder")


class FinishedRun(Section):
    """The contents of result.json: the planned run and its result."""

    run: PlannedRun
    result: RunResult


def read_result(run_dir: Path, run: PlannedRun) -> RunResult | None:
    """The result of the run in this folder; None unless it is finished, with the planned config and measures.

    Label and overrides are those of the plan, which may have changed since.
    """
    try:
        finished = FinishedRun.model_validate_json((run_dir / RESULT_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    if finished.run.what_decides != run.what_decides:
        return None
    return finished.result.model_copy(update={"label": run.label, "overrides": run.overrides})


def write_result(run_dir: Path, run: PlannedRun, result: RunResult) -> None:
    """Write result.json, which makes the run finished."""
    write_whole(run_dir / RESULT_FILE, FinishedRun(run=run, result=result).model_dump_json(indent=1) + "\n")

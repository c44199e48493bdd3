"""What figures draw: columns of the results by name, runs by variant, and means over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pellucid.experiments.results import RunResult, by_variant, numbers_of

Points = list[tuple[float, float]]
SkillMeasure = Literal["excess", "accuracy"]
SKILL_FIELDS: dict[SkillMeasure, str] = {"excess": "excess_nats_per_document", "accuracy": "accuracy"}
SKILL_LABELS: dict[SkillMeasure, str] = {
    "excess": "excess over the floor (nats per fable)",
    "accuracy": "right where one token is possible (% of tokens)",
}

# The label of each column's axis, with its unit.
AXIS_LABELS = {
    "parameters": "parameters",
    "non_embedding_parameters": "parameters without the embeddings",
    "flops": "training compute (FLOP)",
    "tokens": "training tokens",
    "seconds": "training time (seconds)",
    "val_loss": "validation loss (nats per token)",
    "floor": "floor: the entropy of the text (nats per token)",
    "excess": "excess over the floor (nats per token)",
    "excess_fraction": "excess over the floor (% of the floor)",
    "bits_per_byte": "validation loss (bits per byte)",
}


def axis_label(column: str) -> str:
    """The column in words, with its unit; a key of the run config stands for itself."""
    match column.split("."):
        case ["excess", skill]:
            return f"excess in {skill} (nats per fable)"
        case ["contexts", length]:
            return f"excess or loss at context {length} (nats per token)"
        case ["accuracy", skill]:
            return f"{skill}: right where one token is possible (%)"
        case _:
            return AXIS_LABELS.get(column, column)


def is_share(column: str) -> bool:
    """Whether the column is a fraction, to be shown in percent."""
    return column == "excess_fraction" or column.startswith("accuracy.")


def is_measured(column: str) -> bool:
    """Whether the column is measured; otherwise the runs set it, like optimizer.lr."""
    return column in AXIS_LABELS or column.startswith(("excess.", "accuracy.", "contexts."))


def value_of(result: RunResult, column: str) -> float | str:
    """A column of results.csv that runs measure, or a key that the experiment varied.

    A section such as {type: rope} is known by its type. Raises ValueError for a column that this run lacks.
    """
    numbers = numbers_of(result)
    if column not in numbers:
        return _in_words(_override(result, column))
    if (value := numbers[column]) is None:
        who = f"run {result.label!r} (seed {result.seed})"
        raise ValueError(f"{who} has no {column}; it is known only for some corpora and skills")
    return float(value)


def number_of(result: RunResult, column: str) -> float:
    """`value_of` where only a number will do. Raises ValueError for words."""
    value = value_of(result, column)
    if isinstance(value, str):
        raise ValueError(f"{column} of run {result.label!r} is {value!r}, and this axis takes numbers only")
    return value


def floor_of(result: RunResult, column: str) -> float | None:
    """The floor in the column's unit, if the column is a loss and its floor is known."""
    if column not in ("val_loss", "bits_per_byte") or result.floor is None:
        return None
    return number_of(result, column) * result.floor / result.val_loss


def _override(result: RunResult, key: str) -> Any:
    """What the run sets a dotted key to, itself or in a section: optimizer.lr is found in {optimizer: {lr: 0.1}}."""
    for known, value in result.overrides.items():
        if known == key:
            return value
        if key.startswith(f"{known}."):
            for name in key.removeprefix(f"{known}.").split("."):
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                return value
    known_columns = ", ".join([*numbers_of(result), *result.overrides])
    raise ValueError(f"run {result.label!r} has no column {key!r}; it has {known_columns}")


def _in_words(value: Any) -> float | str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return float(value)
        case None:
            return "none"
        case {"type": kind}:
            return str(kind)
        case _:
            return str(value)


@dataclass(frozen=True)
class Band:
    """One line of a figure: at each x the mean over seeds and their range. Arrays of one length."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def band(points_of_seeds: Sequence[Sequence[tuple[float, float]]]) -> Band:
    """From the (x, y) points of each seed; an x that only some seeds have is left out, or the mean would jump."""
    seeds = [dict(points) for points in points_of_seeds]
    x = sorted(set(seeds[0]).intersection(*seeds[1:]))
    y = np.array([[seed[at] for at in x] for seed in seeds], dtype=float).reshape(len(seeds), len(x))
    return Band(np.array(x, dtype=float), y.mean(axis=0), y.min(axis=0), y.max(axis=0))


def bands_of(results: Sequence[RunResult], points_of: Callable[[RunResult], Points]) -> dict[str, Band]:
    """A line per variant."""
    return {label: band([points_of(run) for run in runs]) for label, runs in by_variant(results).items()}


def seeds_in_words(
    results: Sequence[RunResult], mark: str = "line", spread: str = "and the band is their range"
) -> str:
    """A sentence: how many seeds each mark averages, and what shows their spread."""
    counts = sorted({len(runs) for runs in by_variant(results).values()})
    if counts == [1]:
        return f"Each {mark} is one run, of one seed."
    many = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return f"Each {mark} is the mean over {many}, {spread}."

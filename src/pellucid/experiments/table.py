"""Columns of an experiment's results, for results.csv, tables and figures."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pellucid.experiments.plan import PlannedRun
from pellucid.experiments.results import Failure, RunResult, Skills

COLUMNS_OF_EVERY_RUN = (
    *("parameters", "non_embedding_parameters", "flops", "tokens", "seconds"),
    *("val_loss", "floor", "excess", "excess_fraction", "left_to_learn", "impossible", "bits_per_byte"),
)
AXIS_LABELS = {  # with units
    "parameters": "parameters",
    "non_embedding_parameters": "parameters without the embeddings",
    "trained_parameters": "parameters that are trained",
    "flops": "training compute (FLOP)",
    "tokens": "training tokens",
    "seconds": "training time (seconds)",
    "val_loss": "validation loss (nats per token)",
    "floor": "floor: the text's own −ln p (nats per token)",
    "excess": "excess over the floor (nats per token)",
    "excess_fraction": "excess over the floor (% of the floor)",
    "left_to_learn": "excess over the floor (% of what context tells)",
    "impossible": "probability of impossible texts (%)",
    "bits_per_byte": "validation loss (bits per byte)",
    "answers.whole": "answers that are whole fables (%)",
    "answers.obeys": "answers that do as they are told (%)",
    "answers.distinct": "answers that differ from all others (%)",
    "answers.reward": "mean reward of an answer",
    "answers.kl": "KL divergence from the start (nats per answer)",
    "model.n_layers": "layers",
    "model.d_model": "width of the model (d_model)",
    "train.steps": "number of updates",
    "optimizer.type": "optimizer",
    "optimizer.lr": "learning rate",
}
VALUES = {"none": "no", "rope": "RoPE"}
WORDS = {  # for `key=value` in the label of a variant
    "n_layers": "{} layers",
    "n_heads": "{} heads",
    "d_model": "width {}",
    "steps": "{} updates",
    "beta": "β = {}",
    "position": "{} positions",
    "order": "{}",
    "norm_placement": "{}-norm",
    "norm": "{}",
}
AXIS_LABELS_BY_SKILL = {
    "excess": "excess in {} (nats per document)",
    "accuracy": "{}: right where one token is possible (%)",
    "half": "first step with half of {} right",
}


def axis_label(column: str) -> str:
    """The axis label of a column, with its unit; other columns and keys of the run config are their own label."""
    kind, _, skill = column.partition(".")
    if skill and kind in AXIS_LABELS_BY_SKILL:
        return AXIS_LABELS_BY_SKILL[kind].format(skill)
    return AXIS_LABELS.get(column, column)


def in_words(label: str) -> str:
    """A variant's label for a figure: `n_layers=1, position=none` is "1 layer, no positions"."""
    parts = []
    for part in label.split(", "):
        key, is_key, value = part.partition("=")
        text = WORDS.get(key, key.replace("_", " ") + " {}").format(VALUES.get(value, value)) if is_key else part
        parts.append(re.sub(r"^1 (\w+)s$", r"1 \1", text))
    return ", ".join(parts)


def is_share(column: str) -> bool:
    """Whether the column is a fraction, to be shown in percent."""
    shares = ("excess_fraction", "left_to_learn", "impossible", "answers.whole", "answers.obeys", "answers.distinct")
    return column in shares or column.startswith("accuracy.")


def numbers_of(result: RunResult) -> dict[str, float | None]:
    """A run's numbers by their columns in results.csv; unknown ones are None."""
    skills = with_families(result.skills)
    elsewhere = [
        (skill, text, figures) for text, of in result.texts.items() for skill, figures in with_families(of).items()
    ]
    return {
        **{column: getattr(result, column) for column in COLUMNS_OF_EVERY_RUN},
        **{f"excess.{skill}": figures.get("excess_nats_per_document") for skill, figures in skills.items()},
        **{f"accuracy.{skill}": figures.get("accuracy") for skill, figures in skills.items()},
        **{f"excess.{skill}@{text}": figures["excess_nats_per_document"] for skill, text, figures in elsewhere},
        **{f"accuracy.{skill}@{text}": figures["accuracy"] for skill, text, figures in elsewhere},
        **{f"half.{skill}": step for skill, step in result.half_right.items()},
        **{f"answers.{name}": value for name, value in result.answers.items()},
        **({} if result.trained_parameters is None else {"trained_parameters": result.trained_parameters}),
        **{name: value for name, value in result.measured.items() if value is None or isinstance(value, (int, float))},
    }


def with_families(skills: Skills) -> Skills:
    """The skills, and those that begin with the same word (`recall to 8`, `recall to 16`) as one, named by it.

    Their excess adds up. Shares of what was right are averaged, weighted by their tokens.
    """
    members: dict[str, list[dict[str, float | None]]] = defaultdict(list)
    for skill, figures in skills.items():
        members[skill.partition(" ")[0]].append(figures)
    return skills | {family: _together(parts) for family, parts in members.items() if len(parts) > 1}


def _together(parts: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    table = pd.DataFrame(parts, dtype=float)
    weights = table.share_of_tokens[table.accuracy.notna()]
    accuracy = (table.accuracy * weights).sum() / weights.sum() if weights.sum() else None
    return {"excess_nats_per_document": table.excess_nats_per_document.sum(), "accuracy": accuracy}


def results_csv(runs: Sequence[PlannedRun], outcomes: Sequence[RunResult | Failure]) -> str:
    """The results as CSV, one row per planned run, for a spreadsheet or pandas.

    Repeated on the same machine, an experiment differs only in `seconds`. Sections of a config are JSON in one cell.
    """

    def cell(value: Any) -> Any:
        return json.dumps(value) if isinstance(value, (dict, list, bool)) else value

    planned = [
        {"label": run.label, "seed": run.seed, **{key: cell(value) for key, value in run.overrides.items()}}
        for run in runs
    ]
    measured = [{} if isinstance(outcome, Failure) else numbers_of(outcome) for outcome in outcomes]
    ends = [f"failed: {outcome.message}" if isinstance(outcome, Failure) else "done" for outcome in outcomes]
    tables = (planned, measured, {"status": ends})
    columns = [pd.DataFrame(rows, dtype=object) for rows in tables]  # as objects, so that numbers stay as they are
    return str(pd.concat(columns, axis=1).to_csv(index=False, lineterminator="\n"))


def value_of(result: RunResult, column: str) -> float | str:
    """A run's value of a measured column, of a key that the experiment varied, or of one in a varied section.

    A section such as {type: rope} is represented by its type. Raises ValueError for a column that this run lacks.
    """
    numbers = numbers_of(result)
    if column in numbers and numbers[column] is None:
        who = f"run {result.label!r} (seed {result.seed})"
        raise ValueError(f"{who} has no {column}; it is known only for some corpora and skills")
    values = {**dict(_with_inner_keys(result.overrides)), **numbers}
    if column not in values:
        columns = ", ".join([*numbers, *result.overrides])
        raise ValueError(f"run {result.label!r} has no column {column!r}; it has {columns}")
    match values[column]:
        case bool() as is_on:
            return "yes" if is_on else "no"
        case int() | float() as number:
            return float(number)
        case None:
            return "none"
        case {"type": kind}:
            return str(kind)
        case other:
            return str(other)


def _with_inner_keys(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key with its value, also inside sections: optimizer and optimizer.lr."""
    for key, value in section.items():
        yield prefix + key, value
        if isinstance(value, dict):
            yield from _with_inner_keys(value, f"{prefix}{key}.")


def number_of(result: RunResult, column: str) -> float:
    """`value_of` as a number. Raises ValueError for words."""
    value = value_of(result, column)
    if isinstance(value, str):
        raise ValueError(f"{column} of run {result.label!r} is {value!r}, and this axis takes numbers only")
    return value


def floor_of(result: RunResult, column: str) -> float:
    """The floor in the column's unit, if the column is a loss and its floor is known; or else NaN."""
    if column not in ("val_loss", "bits_per_byte") or result.floor is None:
        return float("nan")
    return number_of(result, column) * result.floor / result.val_loss

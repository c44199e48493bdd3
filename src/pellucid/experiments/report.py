"""Writes report.md: the question, what was varied, the results, and how to reproduce them."""

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from pellucid.config.experiment import ExperimentConfig
from pellucid.cost.step_time import duration
from pellucid.errors import ConfigError, DataError, Fix, Option
from pellucid.evaluation.answers import Share
from pellucid.experiments.figures.draw import draw
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import Plan
from pellucid.experiments.results import Failure, RunResult
from pellucid.experiments.table import numbers_of
from pellucid.files import write_whole

REPORT_FILE = "report.md"
# The section that is written by hand; see `write_report`.
CONCLUSION = re.compile(r"^## What it shows[ \t]*\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)

Write = Callable[[float], str]  # the number format of a column

Columns = dict[str, tuple[str, Write]]  # by heading: the column of results.csv

Cell = Callable[[pd.Series, Write], str]  # what stands in a cell for the runs of a variant

COLUMNS: Columns = {
    "parameters": ("parameters", "{:,.0f}".format),
    "trained": ("trained_parameters", "{:,.0f}".format),
    "training FLOPs": ("flops", "{:.2e}".format),
    "tokens read": ("tokens", "{:,.0f}".format),
    "loss": ("val_loss", "{:.4f}".format),
    "excess": ("excess", "{:.4f}".format),
    "of the floor": ("excess_fraction", "{:.1%}".format),
    "of what context tells": ("left_to_learn", "{:.1%}".format),
    "on impossible texts": ("impossible", "{:.1%}".format),
    "seconds": ("seconds", "{:.0f}".format),
}

ANSWERS: Columns = {
    "whole fables": ("answers.whole", "{:.1%}".format),
    "obey": ("answers.obeys", "{:.1%}".format),
    "reward": ("answers.reward", "{:.3f}".format),
    "KL from the start": ("answers.kl", "{:.2f}".format),
    "distinct": ("answers.distinct", "{:.1%}".format),
}


def written_conclusion(folder: Path) -> str | None:
    """The handwritten section of the folder's report, if any. DataError for a report that is not text."""
    file = folder / REPORT_FILE
    try:
        match = CONCLUSION.search(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise DataError(str(file), f"not UTF-8 at byte {error.start}", "save it as UTF-8, or move it away") from error
    return match[0].strip() if match else None


def require_own_report(folder: Path, config: ExperimentConfig) -> None:
    """Raise ConfigError if the report would replace a file that no experiment wrote."""
    figures = {f"{figure.file_stem}.png": b"matplotlib" for figure in config.figures}
    signs = {REPORT_FILE: b"## how to reproduce it", "results.csv": b"label,seed,", **figures}
    for name, word in signs.items():
        file = folder / name
        if file.exists() and not (file.is_file() and word in file.read_bytes().lower()):
            what = "it would be replaced by the experiment's, but no experiment wrote it"
            fix = Fix("name another folder with {}, or move it away", Option("--report", "report"))
            raise ConfigError(str(file), what, fix)


def write_report(
    plan: Plan, outcomes: Sequence[RunResult | Failure], folder: Path, note: Callable[[str], None]
) -> Path:
    """Draw the figures and write report.md into the folder; returns its path. Outcomes are in the plan's order.

    `note` receives a line for each figure that could not be drawn. Everything is rewritten except one section: if the
    old report has a heading `## What it shows`, the text from there to the next `## ` is kept, after the question.
    """
    file, config = folder / REPORT_FILE, plan.config
    conclusion = written_conclusion(folder)
    results = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    parts = [
        f"# {config.name.replace('_', ' ').replace('-', ' ').capitalize()}",
        config.question.strip(),
        *([conclusion] if conclusion else []),
        *_what_was_varied(plan),
        *_results(results, plan.own),
        *_figures(plan, results, folder, note),
        *_what_failed(plan, outcomes),
        *_how_to_reproduce_it(plan, results),
    ]
    write_whole(file, "\n\n".join(parts) + "\n")
    return file


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, numbers to the right."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, ruler, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def mean_and_range(values: pd.Series, write: Write) -> str:
    """`0.52 (0.50–0.55)`: the mean, lowest and highest; the mean alone if all look equal; a dash if none is known.

    Of outcomes in two groups, such as learned and not learned, no run is near the mean: then it is the median.
    """
    known_N = np.sort(values.dropna().to_numpy())
    if not len(known_N):
        return "–"
    low, high = write(known_N[0]), write(known_N[-1])
    if low == high:
        return low
    middle = f"median {write(np.median(known_N))}" if is_in_two_groups(known_N) else write(known_N.mean())
    return f"{middle} ({low}–{high})"


def is_in_two_groups(sorted_N: NDArray[np.float64]) -> bool:
    """Whether the widest gap between neighbours takes three quarters of a range that is wide beside the mean."""
    width = sorted_N[-1] - sorted_N[0]
    return len(sorted_N) > 3 and 2 * width > abs(sorted_N.mean()) and np.diff(sorted_N).max() > 0.75 * width


def times_reached(steps: pd.Series, write: Write = "{:,.0f}".format) -> str:
    """`4 of 5 (38–96 %), step 150`: how many runs got there, the 95 % interval of that share, and the median step.

    Runs that never got there count as later than all others: so there is a median if more than half of them did.
    """
    reached, n = steps.dropna().sort_values(), len(steps)
    low, high = (f"{100 * share:.0f}" for share in Share(len(reached), n).interval)
    middle = f", step {write(reached.iloc[n // 2])}" if len(reached) > n // 2 else ""
    return f"{len(reached)} of {n} ({low}–{high} %){middle}"


def _what_was_varied(plan: Plan) -> list[str]:
    config, n_variants = plan.config, len({run.label for run in plan.runs})
    common = f"Every run starts from `{config.base}`"
    common += f" with {_in_words(config.set)}" if config.set else ""
    if plan.overrides:
        common += " and, from the command line, " + ", ".join(f"`{override}`" for override in plan.overrides)
    if config.grid:
        axes = [f"- `{key}`: {', '.join(map(_value, values))}" for key, values in config.grid.items()]
        variants = [f"All combinations of these values, {n_variants} variants:", "\n".join(axes)]
    else:
        rows = [[run.label, _in_words(run.set) if run.set else "nothing"] for run in config.runs]
        variants = [
            f"The {n_variants} variants:" if n_variants > 1 else "The only variant:",
            table(["variant", "changes"], rows),
        ]
    return ["## What was varied", f"{common}.", *variants, _seeds(plan)]


def _seeds(plan: Plan) -> str:
    seeds = plan.config.seeds
    starts_anew = any(run.config.start_from is None for run in plan.runs)
    if len(seeds) == 1:
        return f"Each variant was trained once, with seed {seeds[0]}: small differences may be luck."
    listed = ", ".join(map(str, seeds))
    changed = "first weights" if starts_anew else "random draws"
    return (
        f"Each variant was trained with {len(seeds)} seeds ({listed}), which change the {changed} and the order of the "
        "data. Tables give the mean over seeds and, in brackets, the lowest and the highest."
    )


def _results(results: Sequence[RunResult], own: OwnCode) -> list[str]:
    if not results:
        return ["## Results", "No run is finished."]
    rows = [numbers_of(run) for run in results]
    return paragraphs(pd.DataFrame(rows, index=[run.label for run in results], dtype=float), own)


def paragraphs(numbers: pd.DataFrame, own: OwnCode) -> list[str]:
    """The tables of results.csv: `numbers` has a row for each run, named by its variant, and those columns."""
    text = "Loss is in nats per token, over the whole validation part"
    if floors := sorted({f"{floor:.4f}" for floor in numbers.floor.dropna()}):
        text += f"; excess is how far it lies above the floor, the text's own −ln p ({' or '.join(floors)})"
    columns = _measured(numbers, COLUMNS)
    if "of what context tells" in columns:
        text += ". As a share of what context tells, the excess is 100% for a reader who knows only "
        text += "how often each token occurs"
    return [
        *["## Results", f"{text}.", variants_table(numbers, columns)],
        *_answers(numbers),
        *own.tables(numbers),
        *_skills(numbers),
        *_other_texts(numbers),
    ]


def _measured(numbers: pd.DataFrame, columns: Columns) -> Columns:
    """The columns in which at least one run has a number."""
    return {h: column for h, column in columns.items() if column[0] in numbers and numbers[column[0]].notna().any()}


def _answers(numbers: pd.DataFrame) -> list[str]:
    if not (columns := _measured(numbers, ANSWERS)):
        return []
    return [
        "## Answers",
        "Held-out instructions, answered once each, at temperature 1. The grammar says whether an answer is a "
        "whole fable and whether it is as asked; each is worth half a point of reward. KL is the divergence from "
        "the model that the run started from, in nats per answer.",
        variants_table(numbers, columns),
    ]


def _skills(numbers: pd.DataFrame) -> list[str]:
    skills = [c.removeprefix("excess.") for c in numbers if c.startswith("excess.") and "@" not in c]
    if not skills:
        return []
    right = _measured(numbers, {skill: (f"accuracy.{skill}", "{:.1%}".format) for skill in skills})
    parts = [
        "## Skills",
        "What each skill costs above the floor, in nats per document:",
        variants_table(numbers, {skill: (f"excess.{skill}", "{:.3f}".format) for skill in skills}),
        "How often the most likely token is right where only one is possible:",
        variants_table(numbers, right),
    ]
    steps: Columns = {skill: (f"half.{skill}", "{:,.0f}".format) for skill in right if f"half.{skill}" in numbers}
    if steps:
        parts += [
            "How many seeds came to have half of these right, with the 95 % interval of that share; and the median of "
            "the steps at which they first had:",
            variants_table(numbers, steps, times_reached),
        ]
    return parts


def _other_texts(numbers: pd.DataFrame) -> list[str]:
    parts = []
    columns_of: dict[str, Columns] = defaultdict(dict)
    for column in numbers:
        kind, _, skill = column.partition(".")
        skill, at, text = skill.partition("@")
        if kind == "accuracy" and at:
            columns_of[text][skill] = (column, "{:.1%}".format)
    for text, columns in columns_of.items():
        measured = _measured(numbers, columns)
        if not all(numbers[c].equals(numbers.get(f"accuracy.{skill}")) for skill, (c, _) in measured.items()):
            sentence = f"How often the most likely token is right on other texts, {text}:"
            parts += [sentence, variants_table(numbers, measured)]
    return parts


def variants_table(numbers: pd.DataFrame, columns: Columns, cell: Cell = mean_and_range) -> str:
    """A table with a row per variant, and the mean and range over its runs in each column, or what `cell` says."""
    rows = [
        [label, *(cell(runs[column], write) for column, write in columns.values())]
        for label, runs in numbers.groupby(level=0, sort=False)
    ]
    return table(["variant", *columns], rows)


def _figures(plan: Plan, results: Sequence[RunResult], folder: Path, note: Callable[[str], None]) -> list[str]:
    parts = ["## Figures"] if plan.config.figures else []
    for figure in plan.config.figures:
        parts.append(f"### {figure.title}")
        try:
            drawing = draw(figure, plan, results, folder)
        except (ValueError, ConfigError) as error:
            parts.append(f"Not drawn: {error}.")
            note(f"warning: figure '{figure.title}' is not drawn: {error}")
            continue
        parts += [f"![{figure.title}]({figure.file_stem}.png)", drawing.caption]
        parts += [drawing.table] if drawing.table else []
    return parts


def _what_failed(plan: Plan, outcomes: Sequence[RunResult | Failure]) -> list[str]:
    lines = [
        f"- {run.label}, seed {run.seed}: `{outcome.message}`"
        for run, outcome in zip(plan.runs, outcomes, strict=True)
        if isinstance(outcome, Failure)
    ]
    return ["## Runs that failed", "\n".join(lines)] if lines else []


def _how_to_reproduce_it(plan: Plan, results: Sequence[RunResult]) -> list[str]:
    command = shlex.join(["pellucid", "experiment", os.path.relpath(plan.source), *plan.overrides])
    total = sum(result.seconds for result in results)
    text = f"All numbers are in [results.csv](results.csv). Training took {duration(total)} in total, over all runs."
    return ["## How to reproduce it", f"    {command}", text]


def _in_words(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` = {_value(value)}" for key, value in changes.items())


def _value(value: Any) -> str:
    """A value as YAML, on one line."""
    line: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=inf)
    return line.removesuffix("...\n").rstrip()

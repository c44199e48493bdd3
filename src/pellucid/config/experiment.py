"""Knobs of an experiment: runs that differ in a few settings, and the figures that compare them (`experiments/`)."""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from pellucid.config.base import JSON_SCHEMA, Rule, Section
from pellucid.config.read import read_section
from pellucid.config.yaml_source import Places

# Dotted keys of a run config and their values: {model.n_layers: 2, optimizer: {type: sgd, lr: 0.1}}.
Changes = dict[str, Any]
Values = Annotated[list[Any], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class RunOfList(Section):
    """One of the runs to compare, by name."""

    label: str = Field(min_length=1, max_length=60, description="what tables and figures call it")
    set: Changes = Field({}, description="dotted keys of the run config and their values")


class FigureSection(Section):
    title: str = Field(min_length=1, description="what it compares: its heading in the report and its file name")
    finding: str | None = Field(
        None, description="what it shows, once that is known: drawn above it instead of the title"
    )
    only: Annotated[tuple[str, ...], Field(strict=False)] = Field((), description="variants to draw; empty: all")

    @property
    def file_stem(self) -> str:
        """The title as a file name: lower-case letters, digits and hyphens."""
        words = re.sub(r"[^a-z0-9]+", " ", self.title.lower())
        return textwrap.shorten(words, 80, placeholder="").replace(" ", "-") or "figure"


class BarsConfig(FigureSection):
    """One figure of the results per variant: each seed a dot, their mean a bar."""

    type: Literal["bars"]
    y: str = Field(description="column of results.csv, as excess or excess.recall")
    label: str | None = Field(None, description="of its axis; left out: what Pellucid calls the column")


class LinesConfig(FigureSection):
    """One figure of the results against another or against a key that was varied; each seed a dot, means joined."""

    type: Literal["lines"]
    x: str = Field(description="column of results.csv, or a dotted key that the runs set")
    y: str = Field(description="column of results.csv")
    by: str | None = Field(
        None,
        description="dotted key of which each value has its own line; or label: that of the run, up to its last comma",
    )
    log_x: bool = False
    log_y: bool = False


class CurvesConfig(FigureSection):
    """Loss or rewards during training: one line per variant, the mean over seeds, with their range."""

    type: Literal["curves"]
    x: Literal["tokens", "step", "flops"] = "tokens"
    y: Literal["val_loss", "excess", "reward", "whole", "obeys", "right", "thought", "kl"] = Field(
        "excess", description="excess is drawn on logarithmic axes; from reward on: of runs that learn from rewards"
    )


class SkillsConfig(FigureSection):
    """A table in colours: variants by skills."""

    type: Literal["skills"]
    y: Literal["excess", "accuracy"] = "excess"
    text: str | None = Field(None, description="a name from measures.texts; left out: the run's own text")


class SkillCurvesConfig(FigureSection):
    """Learning curves of the skills: a panel per variant, a line per skill."""

    type: Literal["skill_curves"]
    y: Literal["excess", "accuracy"] = "excess"


class OwnConfig(FigureSection):
    """A figure that `draw` draws, in the NAME.py beside this NAME.yaml."""

    type: Literal["own"]
    what: str = Field("", description="tells `draw` what to draw, if it draws several figures")


FigureConfig = Annotated[
    BarsConfig | LinesConfig | CurvesConfig | SkillsConfig | SkillCurvesConfig | OwnConfig,
    Field(discriminator="type"),
]


class MeasuresConfig(Section):
    """Measures of each run besides its loss. Others stand in the NAME.py beside this NAME.yaml."""

    texts: dict[str, Changes] = Field(
        {}, description="other texts to score the trained model on: a name, and the keys of the corpus that differ"
    )
    answers: int | None = Field(
        None, ge=1, description="held-out instructions that the trained model answers; for corpus instructions only"
    )


class ExperimentConfig(Section, json_schema_extra=JSON_SCHEMA):
    """An experiment. `pellucid experiment` reads it from YAML."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="kept in checkpoints/experiments/<name>")
    question: str = Field(min_length=1, description="what the report begins with")
    base: str = Field(min_length=1, description="run config that all runs start from, seen from the current folder")
    set: Changes = Field({}, description="dotted keys that all runs change, and their values")
    grid: dict[str, Values] = Field({}, description="dotted keys and the values to try: each with each")
    runs: Annotated[tuple[RunOfList, ...], Field(strict=False)] = Field((), description="or a list of runs, by name")
    seeds: Annotated[tuple[Seed, ...], Field(strict=False)] = Field((0,), min_length=1)
    measures: MeasuresConfig = MeasuresConfig()
    figures: Annotated[tuple[FigureConfig, ...], Field(strict=False)] = ()

    def _rules(self) -> Iterable[Rule]:
        is_none_or_both = bool(self.grid) == bool(self.runs)
        yield is_none_or_both, "", "an experiment has either a grid or a list of runs", "give one of the two"
        title_of: dict[str, str] = {}
        for figure in self.figures:
            stem = figure.file_stem
            both = f"the figures {title_of.get(stem)!r} and {figure.title!r} would both be {stem}.png"
            yield stem in title_of, "", both, "give them other titles"
            title_of[stem] = figure.title


class LoadedExperiment(NamedTuple):
    """An experiment, and the place of each of its keys, for the errors of its runs."""

    config: ExperimentConfig
    places: Places


def load_experiment(file: Path) -> LoadedExperiment:
    """Read an experiment. Raises ConfigError, with file, line and key. The configs of its runs are not checked."""
    return LoadedExperiment(*read_section(ExperimentConfig, file))

"""The figures of an experiment, as PNG and SVG files with a caption: one function per type of figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from typing_extensions import assert_never

from pellucid.config.experiment import (
    BarsConfig,
    ContextsConfig,
    CurvesConfig,
    ExperimentConfig,
    FigureConfig,
    GradientNormsConfig,
    LinesConfig,
    ScalingConfig,
    SkillCurvesConfig,
    SkillsConfig,
)
from pellucid.experiments.figures.bars import draw_bars
from pellucid.experiments.figures.contexts import draw_contexts
from pellucid.experiments.figures.curves import draw_curves
from pellucid.experiments.figures.gradient_norms import draw_gradient_norms
from pellucid.experiments.figures.lines import draw_lines
from pellucid.experiments.figures.scaling import draw_scaling
from pellucid.experiments.figures.skill_curves import draw_skill_curves
from pellucid.experiments.figures.skills import draw_skills
from pellucid.experiments.figures.style import STYLE, Sketch
from pellucid.experiments.results import RunResult, by_variant
from pellucid.files import written_whole


@dataclass(frozen=True)
class Drawing:
    """A figure on disk as <file_stem>.png and <file_stem>.svg.

    caption: what is shown, what was varied, how many seeds; table: in Markdown, "" if the figure has none.
    """

    file_stem: str
    caption: str
    table: str


def draw(figure: FigureConfig, experiment: ExperimentConfig, results: Sequence[RunResult], folder: Path) -> Drawing:
    """Draws one figure of the experiment from its finished runs, and writes it into the folder.

    Raises ValueError if the results lack what it shows.
    """
    results = _chosen(figure, results)
    if not results:
        raise ValueError(f"figure {figure.title!r} has no finished runs to show yet")
    with matplotlib.rc_context(STYLE):
        sketch = _sketch(figure, results)
        folder.mkdir(parents=True, exist_ok=True)
        _save(sketch.figure, folder / f"{figure.file_stem}.png")
        _save(sketch.figure, folder / f"{figure.file_stem}.svg")
    caption = f"{sketch.shows[0].upper()}{sketch.shows[1:]} {_varied(experiment, results)}"
    return Drawing(figure.file_stem, caption, sketch.table)


def _sketch(figure: FigureConfig, results: Sequence[RunResult]) -> Sketch:
    match figure:
        case BarsConfig():
            return draw_bars(figure, results)
        case LinesConfig():
            return draw_lines(figure, results)
        case CurvesConfig():
            return draw_curves(figure, results)
        case SkillsConfig():
            return draw_skills(figure, results)
        case SkillCurvesConfig():
            return draw_skill_curves(figure, results)
        case ContextsConfig():
            return draw_contexts(figure, results)
        case GradientNormsConfig():
            return draw_gradient_norms(figure, results)
        case ScalingConfig():
            return draw_scaling(figure, results)
        case _:
            assert_never(figure)


def _chosen(figure: FigureConfig, results: Sequence[RunResult]) -> Sequence[RunResult]:
    labels = [result.label for result in results]
    for label in figure.only:
        if label not in labels:
            raise ValueError(f"no variant is called {label!r} in figure {figure.title!r}, or it has no results")
    return [result for result in results if not figure.only or result.label in figure.only]


def _varied(experiment: ExperimentConfig, results: Sequence[RunResult]) -> str:
    """The caption's words on what differs between the runs: the keys of a grid, or the variants of a list."""
    variants = by_variant(results)
    seeds = len({result.seed for result in results})
    counts = ((len(variants), "variant"), (seeds, "seed"), (len(results), "run"))
    size = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in counts) + "."
    if experiment.grid:
        return f"Varied: {_listed(list(experiment.grid))}; {size}"
    return f"Compared: {_listed(list(variants))}; {size}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _save(figure: Figure, file: Path) -> None:
    """Whole or not at all; without the date, so the same results give the same bytes."""
    kind = file.suffix.removeprefix(".")
    with written_whole(file) as draft:
        figure.savefig(draft, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)

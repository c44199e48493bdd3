"""Draws the figures of an experiment as PNG files with a caption."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

from pellucid.config.experiment import ExperimentConfig, FigureConfig
from pellucid.errors import ConfigError
from pellucid.experiments.figures.bars import draw_bars
from pellucid.experiments.figures.curves import draw_curves
from pellucid.experiments.figures.lines import draw_lines
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.figures.skills import draw_skill_curves, draw_skills
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import Plan
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import in_words
from pellucid.figures import STYLE, save_figure

# What draws figures of each type. The others are of type own: the experiment's own code draws them.
DRAW: dict[str, Callable[[Any, Sequence[RunResult]], Sketch]] = {
    "bars": draw_bars,
    "lines": draw_lines,
    "curves": draw_curves,
    "skills": draw_skills,
    "skill_curves": draw_skill_curves,
}


def draw(figure: FigureConfig, plan: Plan, results: Sequence[RunResult], folder: Path) -> Sketch:
    """Draw one figure of the experiment from its finished runs, and write it into the folder as PNG.

    Returns it with the complete caption: what is shown, what was varied, how many seeds. Raises ValueError if the
    results lack its columns, ConfigError if the experiment's own code fails.
    """
    for label in figure.only:
        if label not in [result.label for result in results]:
            raise ValueError(f"no variant is called {label!r} in figure {figure.title!r}, or it has no results")
    chosen = [result for result in results if not figure.only or result.label in figure.only]
    results = [result.model_copy(update={"label": in_words(result.label)}) for result in chosen]
    if not results:
        raise ValueError(f"figure {figure.title!r} has no finished runs to show yet")
    with matplotlib.rc_context(STYLE):
        sketch = _sketch(figure.model_copy(update={"title": figure.finding or figure.title}), results, plan.own)
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(sketch.figure, folder / f"{figure.file_stem}.png")
    caption = f"{sketch.caption[0].upper()}{sketch.caption[1:]} {_varied(plan.config, results)}"
    return replace(sketch, caption=caption)


def _sketch(figure: FigureConfig, results: Sequence[RunResult], own: OwnCode) -> Sketch:
    draw_it: Callable[[Any, Sequence[RunResult]], Any] = DRAW.get(figure.type, own.draw)
    sketch = draw_it(figure, results)
    if not isinstance(sketch, Sketch):
        raise ConfigError(str(own.path), "draw returned no Sketch", "return Sketch(figure, caption)")
    return sketch


def _varied(experiment: ExperimentConfig, results: Sequence[RunResult]) -> str:
    """The caption's words on what differs between the runs: the keys of a grid, or the variants of a list."""
    variants, seeds = dict.fromkeys(run.label for run in results), {run.seed for run in results}
    counts = ((len(variants), "variant"), (len(seeds), "seed"), (len(results), "run"))
    size = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in counts)
    *names, last = experiment.grid or variants
    listed = f"{', '.join(names)} and {last}" if names else last
    return f"{'Varied' if experiment.grid else 'Compared'}: {listed}; {size}."

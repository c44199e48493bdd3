"""Loss, or its excess where the floor is known, when the trained models read other context lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.config.experiment import ContextsConfig
from pellucid.experiments.figures.axis_numbers import log_limits, log_x, log_y, ticks_at
from pellucid.experiments.figures.data import axis_label, bands_of, seeds_in_words
from pellucid.experiments.figures.style import Sketch, draw_bands, figure_of_lines, label_ends
from pellucid.experiments.results import RunResult


def draw_contexts(config: ContextsConfig, results: Sequence[RunResult]) -> Sketch:
    if not any(run.contexts for run in results):
        raise ValueError("no run was evaluated at other context lengths; list them in measures.contexts")
    bands = bands_of([run for run in results if run.contexts], lambda run: [(float(x), y) for x, y in run.contexts])
    knows_floor = all(run.floor is not None for run in results)
    if not knows_floor and any(run.floor is not None for run in results):
        raise ValueError("some runs know their floor and some do not: their excess and loss do not share an axis")
    figure, axes = figure_of_lines(config.title, list(bands))
    labels = draw_bands(axes, bands)
    x = sorted({float(length) for line in bands.values() for length in line.x})
    log_x(axes, *log_limits(x), ticks_at(np.log(x)) and x)
    y = np.concatenate([line.mean for line in bands.values()])
    if min(y) > 0 and max(y) > 10 * min(y):
        log_y(axes, *log_limits(y))
    y_label = axis_label("excess" if knows_floor else "val_loss")
    axes.set(xlabel="context length in evaluation (tokens)", ylabel=y_label)
    label_ends(axes, labels)
    return Sketch(
        figure,
        f"{y_label} of each trained variant at several context lengths. {seeds_in_words(results)}",
    )

"""The norm of the gradient in each block at the first step: does every depth get its share?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.config.experiment import GradientNormsConfig
from pellucid.experiments.figures.axis_numbers import log_limits, log_y, ticks_at
from pellucid.experiments.figures.data import bands_of, seeds_in_words
from pellucid.experiments.figures.style import Sketch, draw_bands, figure_of_lines, label_ends
from pellucid.experiments.results import RunResult


def draw_gradient_norms(config: GradientNormsConfig, results: Sequence[RunResult]) -> Sketch:
    if not any(run.gradient_norms for run in results):
        raise ValueError("no run measured gradients by depth; set measures.gradient_norms: true")
    measured = [run for run in results if run.gradient_norms]
    bands = bands_of(measured, lambda run: [(float(block), norm) for block, norm in enumerate(run.gradient_norms, 1)])
    figure, axes = figure_of_lines(config.title, list(bands))
    labels = draw_bands(axes, bands)
    log_y(axes, *log_limits(np.concatenate([line.mean for line in bands.values()])))
    if at := ticks_at(np.concatenate([line.x for line in bands.values()])):
        axes.set_xticks(at)
    axes.set(xlabel="block (1 reads the embeddings)", ylabel="norm of the gradient at the first step")
    label_ends(axes, labels)
    return Sketch(
        figure,
        f"Norm of the gradient in each block at the first step, on a logarithmic axis. {seeds_in_words(results)}",
    )

"""Accuracy of a linear probe on a model's vectors, layer by layer.

Remakes: probe
Takes: half a minute
Needs: checkpoints/fables

The same figures as `pellucid probe checkpoints/fables`.
"""

from collections.abc import Iterator
from pathlib import Path

from measurements.heads import shown
from results import Entry

from pellucid.inspection.build import probe_run
from pellucid.trained import load_trained_run


def measure(run: Path, *, most: int = 1000) -> Iterator[Entry]:
    trained, _ = load_trained_run(run)
    scores = probe_run(trained, None, most=most).scores
    figures = {row: {name: shown(score, 100, 1) for name, score in cells.items()} for row, cells in scores.items()}
    yield Entry("probe", figures, ["fables"], numbers="fp32")

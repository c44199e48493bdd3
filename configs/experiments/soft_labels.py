"""The divergence from the truth against the number of documents, and how many sampled labels are worth a soft one."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, draw_means, seeds_in_words
from pellucid.experiments.measures import TrainedRun, divergence_from_truth
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.figures import in_short, label_ends, log_axis, log_limits

DOCUMENTS = 200
LABELS = {"next_token": "sampled labels", "distill": "soft labels"}


def measure(run: TrainedRun) -> dict[str, float]:
    return {"divergence": divergence_from_truth(run, DOCUMENTS)}


def points_of(results: Sequence[RunResult]) -> pd.DataFrame:
    """Label, seed, documents and divergence of each run."""
    return pd.DataFrame(
        (LABELS[run.overrides["objective"]["type"]], run.seed, run.overrides["corpus.size"], run.measured["divergence"])
        for run in results
    ).set_axis(["label", "seed", "x", "y"], axis=1)


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    points = points_of(results)
    picture, axes, labels, means = draw_means(figure.title, points)
    log_axis(axes, "x", log_limits(points.x))
    log_axis(axes, "y", log_limits(means))
    axes.set(xlabel="documents", ylabel="divergence from the truth (nats per token)")
    label_ends(axes, labels)
    words = "Divergence from the truth on new documents after equally many updates, on logarithmic axes."
    return Sketch(picture, f"{words} {seeds_in_words(results)}", worth_table(points))


def worth_table(points: pd.DataFrame) -> str:
    """Beside each number of documents with soft labels: how many with sampled ones end as near to the truth."""
    soft, sampled = (points[points.label == label].groupby("x").y.mean() for label in ("soft labels", "sampled labels"))
    rows = [
        (f"{size:,}", f"{soft[size]:.5f}", f"{sampled[size]:.5f}", in_documents(sampled, soft[size]))
        for size in soft.index
    ]
    return table(("documents", "divergence, soft labels", "sampled labels", "worth with sampled labels"), rows)


def in_documents(sampled: pd.Series, divergence: float) -> str:
    """Where the sampled labels' line crosses this divergence for the last time, joined on logarithmic axes."""
    above = np.flatnonzero(sampled.to_numpy() > divergence)
    if not len(above):
        return "fewer than all"
    if above[-1] == len(sampled) - 1:
        return f"more than {sampled.index[-1]:,} documents"
    ends = slice(above[-1], above[-1] + 2)
    x, y = np.log(sampled.index[ends].to_numpy(float)), np.log(sampled.to_numpy()[ends])
    return f"{in_short(float(np.exp(np.interp(-np.log(divergence), -y, x))), 2)} documents"

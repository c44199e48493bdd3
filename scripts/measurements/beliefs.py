"""How much of the best reader's beliefs a linear map reads off each layer of a model of a hidden Markov language.

Remakes: beliefs
Takes: a minute
Needs: a run of configs/languages/hidden.yaml

The same for the model with its initial weights. A reader of a hidden Markov model keeps the probability of each hidden
state. For three states it is a point of a triangle, and all points that texts can lead to may form a fractal. A linear
map from a layer's vectors to these points is fitted on half of some fresh documents, and drawn for the other half (Shai
et al. 2024). Below it are drawn the beliefs of readers who remember the last few symbols only.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import Entry

from pellucid.corpora.build import build_language
from pellucid.figures import new_figure
from pellucid.inspection.beliefs import Beliefs, Points, read_beliefs
from pellucid.languages.hidden import Hidden
from pellucid.trained import TrainedModel, load_trained_run

N_DOCUMENTS = 2_000
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])  # one for each hidden state


def measure(run: Path, *, pictures: Path | None = None) -> Iterator[Entry]:
    """--pictures docs: draws the beliefs."""
    after, before = beliefs_of(load_trained_run(run)[0])
    table = {
        name: {"trained (R²)": after.explained(points), "untrained (R²)": before.explained(before.layers[name])}
        for name, points in after.layers.items()
    }
    if pictures:
        triangles(after).savefig(pictures / "beliefs.png", dpi=150)
    yield Entry("beliefs", table, ["languages/hidden"], numbers="fp32")


def beliefs_of(trained: TrainedModel) -> tuple[Beliefs, Beliefs]:
    """After training and before."""
    language = build_language(trained.config.corpus)  # type: ignore[arg-type]
    if not isinstance(language, Hidden) or len(language.stationary) != 3:
        raise SystemExit("take a run of corpus.type hidden, with a process of three states")
    after, before = (
        read_beliefs(model, trained.tokenizer, language, N_DOCUMENTS) for model in (trained.model, trained.untrained())
    )
    return after, before


def triangles(after: Beliefs) -> Figure:
    n_columns = max(len(after.layers) + 1, len(after.last_symbols))
    figure = new_figure(
        "What the best reader believes, what the model has of it, and what the last symbols tell", 3.1 * n_columns, 6.6
    )
    panels = figure.subplots(2, n_columns)
    for axes in panels.flat:
        axes.axis("off")
    draw_simplex(panels[0, 0], "the truth: Bayes' rule", after.truth, after.truth)
    for axes, (name, points) in zip(panels[0, 1:], after.layers.items(), strict=False):
        draw_simplex(axes, f"read after {name}: R² {after.explained(points):.3f}", points, after.truth)
    for axes, (n, points) in zip(panels[1], after.last_symbols.items(), strict=False):
        who = f"the last {n} symbols" if n > 1 else "the last symbol"
        draw_simplex(axes, f"{who}: R² {after.explained(points):.3f}", points, after.truth)
    return figure


def draw_simplex(axes: Axes, title: str, points: Points, truth: Points) -> None:
    """Points of the triangle, each in the colour of its true belief: red, green and blue for the three states."""
    size = 0.6
    unique, which = np.unique(points.round(6), axis=0, return_inverse=True)
    if len(unique) < 200:  # of the last symbols: a point for each row of symbols, in the mean colour of its beliefs
        points, size = unique, min(60, 2000 / len(unique))
        truth = np.stack([truth[which.ravel() == n].mean(axis=0) for n in range(len(unique))])
    x, y = (points @ CORNERS).T
    axes.scatter(x, y, s=size, c=np.clip(truth, 0, 1), linewidths=0, rasterized=True)
    axes.set_title(title)
    axes.set(xlim=(-0.08, 1.08), ylim=(-0.08, 0.95), aspect="equal")
    axes.axis("off")

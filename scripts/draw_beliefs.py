"""Draws what a model believes: the exact beliefs of the best reader, and what a linear map reads from each layer.

    pellucid train configs/languages/hidden.yaml
    python scripts/draw_beliefs.py checkpoints/hidden beliefs.png

A reader of a hidden Markov model keeps the probability of each hidden state. For three states it is a point of a
triangle, and all points that texts can lead to may form a fractal. A linear map from a layer's vectors to these points
is fitted on half of some fresh documents, and drawn for the other half (Shai et al. 2024); for comparison, also from
the model with its initial weights, which know only the last symbol. A minute on two cores.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from results import parser, print_table, record

from pellucid.checkpoint.build import TrainedModel, load_trained_run
from pellucid.experiments.figures.style import new_figure
from pellucid.inspection.embed import layers_of_texts
from pellucid.languages.build import build_language
from pellucid.languages.hidden import Hidden
from pellucid.model.build import build_model

Points = NDArray[np.float64]
N_DOCUMENTS = 2_000
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])  # one for each hidden state


class Read(NamedTuple):
    """Beliefs (N, 3) of documents that no map was fitted on: the truth, and what was read from each layer."""

    truth: Points
    layers: list[Points]

    @property
    def explained(self) -> list[float]:
        """The share of the beliefs' variance that each layer's map explains (R²)."""
        spread = ((self.truth - self.truth.mean(axis=0)) ** 2).sum()
        return [float(1 - ((read - self.truth) ** 2).sum() / spread) for read in self.layers]


def read_beliefs(trained: TrainedModel, language: Hidden, texts: list[str]) -> Read:
    """Fit a linear map for each layer on the first half of the texts, and read the other half by it."""
    beliefs = [np.array(language.beliefs(text)) for text in texts]
    vectors = list(layers_of_texts(trained.model, trained.tokenizer, texts))
    half = len(texts) // 2
    truth = np.concatenate(beliefs[half:])
    layers = []
    for layer in zip(*vectors, strict=True):
        assert len(layer[0]) == len(beliefs[0]), "each symbol is one token"
        fitted, held_out = (with_ones(np.concatenate(part)) for part in (layer[:half], layer[half:]))
        weights, *_ = np.linalg.lstsq(fitted, np.concatenate(beliefs[:half]), rcond=None)
        layers.append(held_out @ weights)
    return Read(truth, layers)


def with_ones(vectors: Points) -> Points:
    """The vectors with a constant, for the map's bias."""
    return np.hstack([vectors, np.ones((len(vectors), 1))]).astype(np.float64)


def untrained(trained: TrainedModel) -> TrainedModel:
    """The model with its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(trained.config.seed)
        model = build_model(trained.config.model, trained.tokenizer.vocab_size)
    return replace(trained, model=model.eval())


def draw_simplex(axes: Axes, title: str, points: Points, truth: Points) -> None:
    """Points of the triangle, each in the colour of its true belief: red, green and blue for the three states."""
    size = 0.6
    unique, which = np.unique(points.round(6), axis=0, return_inverse=True)
    if len(unique) < 100:  # after the embedding: a point for each symbol, in the mean colour of its beliefs
        points, size = unique, 60
        truth = np.stack([truth[which.ravel() == n].mean(axis=0) for n in range(len(unique))])
    x, y = (points @ CORNERS).T
    axes.scatter(x, y, s=size, c=np.clip(truth, 0, 1), linewidths=0, rasterized=True)
    axes.set_title(title)
    axes.set(xlim=(-0.08, 1.08), ylim=(-0.08, 0.95), aspect="equal")
    axes.axis("off")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("picture", type=Path)
    options = arguments.parse_args()
    trained, _ = load_trained_run(options.run)
    language = build_language(trained.config.corpus)  # type: ignore[arg-type]
    if not isinstance(language, Hidden) or len(language.stationary) != 3:
        raise SystemExit("take a run of corpus.type hidden, with a process of three states")
    rng = random.Random("beliefs")
    texts = [language.write(rng) for _ in range(N_DOCUMENTS)]
    after, before = read_beliefs(trained, language, texts), read_beliefs(untrained(trained), language, texts)

    names = ["embedding", *(f"block {n}" for n in range(1, len(after.layers) - 1)), "the last norm"]
    figure = new_figure("What the best reader believes, and what the model has of it", 3.1 * (len(names) + 1), 3.6)
    panels = figure.subplots(1, len(names) + 1)
    draw_simplex(panels[0], "the truth: Bayes' rule", after.truth, after.truth)
    for axes, name, points, share in zip(panels[1:], names, after.layers, after.explained, strict=True):
        draw_simplex(axes, f"read after {name}: R² {share:.3f}", points, after.truth)
    figure.savefig(options.picture, dpi=150)
    table = {
        name: {"trained (R²)": trained_share, "untrained (R²)": untrained_share}
        for name, trained_share, untrained_share in zip(names, after.explained, before.explained, strict=True)
    }
    print_table("after", table)
    if options.record:
        record("beliefs", table, ["languages/hidden"], numbers="fp32")


if __name__ == "__main__":
    main()

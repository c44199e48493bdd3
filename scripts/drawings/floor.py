"""The floor in one look: what nobody can guess of each word of a fable, and what a model adds to it.

Remakes: docs/floor.png
Takes: half a minute
Needs: nothing

At each place the loss to be expected is the entropy of the truth and, on top, KL(truth ‖ model): both are exact. The
models are the shipped demo, and a table that has counted in 4,000 other fables which token follows which.
"""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from results import ROOT

from pellucid.config.shipped import DEMO
from pellucid.data.truth import next_token_distributions
from pellucid.figures import MODEL, RIVAL, STYLE, TRUTH, new_figure
from pellucid.inspection.explain import log_probabilities
from pellucid.languages.fables import Fables
from pellucid.trained import load_trained_run

FILE = ROOT / "docs/floor.png"
N_COUNTED, N_SHOWN, SEED = 4_000, 44, 3
Floats = NDArray[np.float64]


def draw(*, to: Path = FILE) -> list[Path]:
    demo, _ = load_trained_run(DEMO)
    language, chance = Fables(world_size=24), random.Random(SEED)
    text = language.write(chance)
    end = demo.tokenizer.end_of_text
    ids = demo.tokenizer.encode(text)
    read, written = [end, *ids], [*ids, end]
    truth = list(next_token_distributions(language, demo.tokenizer, text))
    counts = np.full((demo.tokenizer.vocab_size,) * 2, 1e-3)
    for _ in range(N_COUNTED):
        row = [end, *demo.tokenizer.encode(language.write(chance)), end]
        np.add.at(counts, (row[:-1], row[1:]), 1)
    counted = np.log(counts / counts.sum(axis=1, keepdims=True))[read]
    models = {
        ("a table that counts pairs", RIVAL): missing(truth, counted),
        ("the demo", MODEL): missing(truth, log_probabilities(demo.model, read)),
    }
    entropy = np.array([sum(-p * math.log(p) for p in each.values() if p > 0) for each in truth])
    with matplotlib.rc_context(STYLE):
        floor([demo.tokenizer.decode([id_]) for id_ in written[:N_SHOWN]], entropy, models).savefig(to, dpi=150)
    return [to]


def missing(truth: Sequence[Mapping[int, float]], log_q_TV: Floats) -> Floats:
    """KL(truth ‖ model) at each place, in nats."""
    pairs = zip(truth, log_q_TV, strict=True)
    return np.array([sum(p * (math.log(p) - log_q[id_]) for id_, p in each.items() if p > 0) for each, log_q in pairs])


def floor(texts: Sequence[str], entropy: Floats, models: Mapping[tuple[str, str], Floats]) -> Figure:
    """A panel for each model, whose title gives means over the whole fable."""
    title = "Black is the floor: what nobody can guess. The colour is what a model does not know."
    figure = new_figure(title, 10, 5.4)
    panels = figure.subplots(len(models), sharex=True, sharey=True)
    places = np.arange(len(texts))
    for axes, ((name, color), lacks) in zip(panels, models.items(), strict=True):
        axes.bar(places, entropy[: len(texts)], 0.8, color=TRUTH, label="floor")
        axes.bar(places, lacks[: len(texts)], 0.8, entropy[: len(texts)], color=color, label="excess")
        loss = f"loss {(entropy + lacks).mean():.3f} = floor {entropy.mean():.3f} + excess {lacks.mean():.3f}"
        axes.set_title(f"{name}: {loss} nats per token of this fable", loc="left", color=color, fontweight="bold")
        axes.set_ylabel("nats")
        axes.grid(visible=False, axis="x")
        axes.tick_params(axis="x", length=0)
    panels[-1].set_xticks(places, [text.strip() or "\u23ce" for text in texts], rotation=90)
    panels[-1].margins(x=0.01)
    return figure

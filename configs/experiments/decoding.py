"""Texts written in many ways by one model, judged by the grammar of the fables, beside as many true ones."""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from math import isnan

import pandas as pd

from pellucid.config.experiment import OwnConfig
from pellucid.evaluation.written import judge
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.figures import FLOOR_STYLE, NAME_WIDTH, PALETTE, in_percent, in_short, new_figure, wrapped
from pellucid.generation.sampling import Sampling
from pellucid.generation.text import generate_text, search_text
from pellucid.trained import TrainedModel

BEGINNINGS = 125  # the first sentences of as many held-out fables
SAMPLES = 4  # drawn for each of them, so 500 texts for each way; greedy and search find one
WAYS: dict[str, Sampling | int] = {  # how to draw, or with how many beams to search
    "the model itself": Sampling(),
    "temperature 0.7": Sampling(temperature=0.7),
    "temperature 0.5": Sampling(temperature=0.5),
    "top-k 50": Sampling(top_k=50),
    "top-p 0.9": Sampling(top_p=0.9),
    "min-p 0.1": Sampling(min_p=0.1),
    "repetition penalty 1.2": Sampling(repetition_penalty=1.2),
    "greedy": Sampling(temperature=0),
    "2 beams": 2,
    "4 beams": 4,
    "8 beams": 8,
}
TRUE = "true fables"

# The label and number format of each column of a judgement. Without a complete fable there is no surprise.
PANELS: dict[str, tuple[str, Callable[[float], str]]] = {
    "whole": ("whole fables (%)", "{:.0%}".format),
    "morals": ("different morals", "{:.0f}".format),
    "distance": ("distance of the morals (%)", "{:.0%}".format),
    "surprise": ("surprise (nats)", lambda nats: "–" if isnan(nats) else f"{nats:.1f}"),
}


def measure(run: TrainedRun) -> dict[str, float | None]:
    """The judgement of the texts written in each way: the columns `whole.greedy`, `morals.greedy` and so on.

    The texts go on from the first sentences of held-out fables, the same ones in each way.
    """
    corpus = run.trained.corpus()
    fables = list(islice(corpus.documents("validation"), BEGINNINGS * SAMPLES))
    beginnings = [fable[: fable.index(". ") + 1] for fable in fables[:BEGINNINGS]]
    with run.precision.for_decoding().autocast():
        texts = {
            label: list(chain.from_iterable(write(run.trained, way, i, text) for i, text in enumerate(beginnings)))
            for label, way in WAYS.items()
        }
    judgements = {label: judge(corpus.language, of_way).to_json() for label, of_way in {**texts, TRUE: fables}.items()}
    return {f"{what}.{label}": value for label, found in judgements.items() for what, value in found.items()}


def write(trained: TrainedModel, way: Sampling | int, seed: int, beginning: str) -> list[str]:
    """Texts with this beginning, at most a context long: samples, or the result of a search."""
    start, longest = (trained.model, trained.tokenizer, beginning), trained.model.context_length
    if isinstance(way, int):
        completions = search_text(*start, n_beams=way, max_new_tokens=longest)
    else:
        n = 1 if way.temperature == 0 else SAMPLES  # greedy samples would all be the same
        completions = generate_text(*start, n_samples=n, sampling=way, seed=seed, max_new_tokens=longest)
    return [beginning + completion.completion for completion in completions]


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw a row per way and a panel per measure; the last row and the dashed lines are true fables."""
    ways = [*WAYS, TRUE]
    rows = [[run.measured[f"{what}.{way}"] for what in PANELS] for way in ways for run in results]
    means = pd.DataFrame(rows, columns=[*PANELS], dtype=float)
    means = means.groupby([way for way in ways for _ in results], sort=False).mean()
    names = [wrapped(label, NAME_WIDTH) for label in ways]
    picture = new_figure(figure.title, 10, max(2.4, 1.3 + 0.3 * len(names)))
    panels = picture.subplots(1, len(PANELS), sharey=True)
    for axes, (column, (label, as_text)), color in zip(panels, PANELS.items(), PALETTE, strict=False):
        values = means[column]
        axes.barh(range(len(names)), values.fillna(0), height=0.55, color=color, alpha=0.55)
        for row, value in enumerate(values):
            end = 0 if isnan(value) else value
            text = axes.annotate(as_text(value), (end, row), (5, 0), textcoords="offset points", va="center", size=9)
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # over the dashed line
        axes.axvline(values.iloc[-1], color="black", linestyle=FLOOR_STYLE.linestyle, zorder=1.5)
        axes.set(xlabel=label, xlim=(0, 1.3 * values.max()))
        on_axis = in_percent if label.endswith("(%)") else in_short
        axes.xaxis.set_major_formatter(lambda x, _, on_axis=on_axis: on_axis(x))
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    words = (
        "Every way goes on from the same first sentences of held-out fables. Whole fables are those that the grammar "
        "accepts to the last character. The distance is the total variation between the morals told and their true "
        "probabilities: 0 if each is told as often as it should be. Surprise is the mean of \u2212ln p(fable) under "
        "the true distribution, over whole fables. The dashed lines are true fables, as many as were drawn."
    )
    formats = [as_text for _, as_text in PANELS.values()]
    cells = [[way, *(f(value) for f, value in zip(formats, row, strict=True))] for way, row in means.T.items()]
    header = ["written with", *(label for label, _ in PANELS.values())]
    caption = f"{words} {seeds_in_words(results, 'bar', 'without their spread')}"
    return Sketch(picture, caption, table(header, cells))

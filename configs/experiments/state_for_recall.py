"""How many pairs are remembered: recall in texts of ever more pairs."""

from collections.abc import Sequence

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, draw_means, seeds_in_words
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label, number_of
from pellucid.figures import in_percent, label_ends, wrapped


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw how often a model is right where a value was told before, on each of the other texts in their order."""
    texts, column = list(results[0].texts), "accuracy.recall"
    points = [
        (run.label, run.seed, place, number_of(run, f"{column}@{text}"))
        for run in results
        for place, text in enumerate(texts)
    ]
    picture, axes, labels, _ = draw_means(figure.title, points)
    axes.set_xticks(range(len(texts)), [wrapped(text, max(8, 60 // len(texts))) for text in texts])
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: in_percent(value))
    axes.set(xlabel="texts", ylabel=axis_label(column))
    label_ends(axes, labels)
    words = f"{axis_label(column)}, of each variant on several texts."
    return Sketch(picture, f"{words} {seeds_in_words(results)}")

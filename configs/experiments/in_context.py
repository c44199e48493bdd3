"""The loss at each place of a document, beside readers whose loss is known: by Bayes' rule, by counts, by guesses."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pellucid.config.experiment import CurvesConfig, OwnConfig
from pellucid.data.batches import evaluation_batches
from pellucid.evaluation.loss import score
from pellucid.experiments.figures.curves import draw_curves
from pellucid.experiments.figures.means import Sketch, draw_means, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.results import RunResult
from pellucid.figures import DASHES, FLOOR_STYLE, EndLabel, label_ends
from pellucid.languages.chains import Strategy

STRATEGIES: dict[str, Strategy] = {"by counts of symbols": "counts", "evenly": "evenly"}


def measure(run: TrainedRun) -> dict[str, dict[str, list[float]]]:
    """Mean nats at each place of the held-out documents: of the model, of the truth, and of readers with a strategy.

    The end of a document is left out. Each symbol is one token, so a place is the same for all.
    """
    tokens, corpus = run.data.validation, run.trained.corpus()
    length, batch_size = run.trained.model.context_length, run.config.train.batch_size
    batches = evaluation_batches(tokens, length, batch_size, from_document_starts=True)
    scores = score(run.trained.model, batches, run.precision)
    goes_on = tokens.tokens[scores.places + 1] != run.trained.tokenizer.end_of_text
    at = scores.places[goes_on]
    places = at - tokens.boundaries[np.searchsorted(tokens.boundaries, at, side="right") - 1]
    nats_of = {"model": scores.nats[goes_on], "truth": run.data.truth.nats[at]}
    found = {who: (np.bincount(places, nats) / np.bincount(places)).tolist() for who, nats in nats_of.items()}
    texts = list(corpus.documents("validation"))
    for who, strategy in STRATEGIES.items():
        nats_ND = [list(corpus.language.nats_by_strategy(text, strategy)) for text in texts]
        found[who] = np.mean(nats_ND, axis=0).tolist()
    return {"places": found}


def excess_of_strategies(run: RunResult) -> dict[str, float]:
    """The excess of each strategy, in nats per token of the held-out documents.

    A token that ends a document costs none of them anything, so that all losses are in the ratio of their sums.
    """
    nats = {who: sum(of_place) for who, of_place in run.measured["places"].items()}
    return {who: run.floor * (nats[who] / nats["truth"] - 1) for who in STRATEGIES}


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the curves of training beside the strategies, or the loss at each place beside all that is known."""
    if figure.what == "learning":
        curves = CurvesConfig(type="curves", title=figure.title, x="step")
        return draw_curves(curves, results, levels=excess_of_strategies(results[0]))
    points = [(run.label, run.seed, x, y) for run in results for x, y in enumerate(run.measured["places"]["model"], 1)]
    known = {who: nats for who, nats in results[0].measured["places"].items() if who != "model"}
    picture, axes, labels, _ = draw_means(figure.title, points, *known)
    for (who, nats), dashes in zip(known.items(), DASHES[1:], strict=True):
        axes.plot(np.arange(1, len(nats) + 1), nats, color="black", linestyle=dashes, linewidth=1.1, zorder=3)
        labels.append(EndLabel(who, len(nats), nats[-1], replace(FLOOR_STYLE, linestyle=dashes)))
    axes.set(xlabel="place in the document (1 is its first token)", ylabel="loss (nats per token)")
    label_ends(axes, labels)
    words = "Mean loss at each place of the held-out documents. Black: the truth, and strategies whose loss is known."
    return Sketch(picture, f"{words} {seeds_in_words(results)}")

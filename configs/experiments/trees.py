"""The excess of models beside readers who cannot parse: they know the place in the text and the last few symbols.

A model that ends close above the floor may parse, or do without. So beside it stand the best readers who cannot parse:
p(next symbol or end | place, last k symbols), exactly, from tables that are built up with the constituents.

Shapes: A constituents (B and C are the two parts of one), L lengths, W windows of symbols, X symbols and then the end.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pellucid.config.experiment import BarsConfig, OwnConfig
from pellucid.corpora.drawn import Drawn
from pellucid.experiments.figures.bars import draw_bars
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.languages.trees import RandomGrammar, Trees

Floats = NDArray[np.float64]
MOST_SYMBOLS = 6


def measure(run: TrainedRun) -> dict[str, dict[str, float]]:
    """The excess of each reader on the held-out texts, in nats per token."""
    corpus = run.trained.corpus()
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, Trees)
    texts = list(corpus.documents("validation"))
    floor = -math.fsum(map(corpus.language.log_probability, texts))
    n_tokens = sum(len(text.split()) + 1 for text in texts)
    nats = {reader_name(k): nats_of_reader(corpus.language, texts, k) for k in range(MOST_SYMBOLS + 1)}
    return {"readers": {name: (each - floor) / n_tokens for name, each in nats.items()}}


def reader_name(k: int) -> str:
    return "place" if k == 0 else f"place and last {k} symbols" if k > 1 else "place and last symbol"


def nats_of_reader(language: Trees, texts: Sequence[str], k: int) -> float:
    """−ln p of the texts, ends included, for the best reader who knows the place and the last k symbols."""
    n_symbols = language.grammar.leaves.shape[1]
    tables = place_and_last(language.grammar, 2 ** max(language.grammar.levels), k)
    nats = 0.0
    for text in texts:
        symbols = [language.names.index(symbol) for symbol in text.split()]
        for place, symbol in enumerate([*symbols, n_symbols]):
            window = 0
            for known in symbols[max(0, place - k) : place]:
                window = n_symbols * window + known
            masses_X = tables[place][window]
            nats -= math.log(masses_X[symbol] / masses_X.sum())
    return nats


def place_and_last(grammar: RandomGrammar, longest: int, k: int) -> list[Floats]:
    """For each place, p(the last min(k, place) symbols are W, then comes X): (W, X + 1).

    A window of symbols lies in the first part of a constituent, in the second, or over the border. Then it is the end
    of the one and the start of the other, which do not depend on each other. So three tables are enough for each A:
    its last m symbols, by its length; its first m symbols; and the k + 1 symbols that begin at each of its places.
    """
    n, n_symbols = grammar.leaves.shape
    last = [np.zeros((n, longest + 1, n_symbols**m)) for m in range(k + 2)]
    first = [np.zeros((n, n_symbols**m)) for m in range(k + 2)]
    inside = np.zeros((n, longest, n_symbols ** (k + 1)))
    for a in np.argsort(grammar.levels, kind="stable"):  # parts before the whole
        for m in (0, 1):
            of_one_symbol = grammar.leaves[a] if m else grammar.leaves[a].sum(keepdims=True)
            last[m][a, 1] += of_one_symbol
            first[m][a] += of_one_symbol
        if k == 0:
            inside[a, 0] += grammar.leaves[a]
        for b, c in np.argwhere(grammar.pairs[a]):
            p, p_length_L = grammar.pairs[a, b, c], last[0][b, :, 0]
            first[0][a] += p
            inside[a] += p * inside[b]
            for length in np.flatnonzero(p_length_L).tolist():
                inside[a, length:] += p * p_length_L[length] * inside[c, : longest - length]
                for m in range(1, min(k, length) + 1):
                    inside[a, length - m] += p * side_by_side(last[m][b, length], first[k + 1 - m][c])
            for m in range(k + 2):
                if m:
                    first[m][a] += p * first[m][b]
                for length in range(1, m):
                    first[m][a] += p * side_by_side(last[length][b, length], first[m - length][c])
                for length in range(1, longest):  # of the second part
                    others = slice(1, longest + 1 - length)
                    if length >= m:
                        last[m][a, length + 1 :] += p * np.outer(p_length_L[others], last[m][c, length])
                        continue
                    for other in range(m - length, longest + 1 - length):
                        last[m][a, length + other] += p * side_by_side(
                            last[m - length][b, other], last[length][c, length]
                        )
    tables = []
    for place in range(longest + 1):
        known = min(place, k)
        goes_on = first[place + 1][0] if place < k else inside[0, place - k] if place < longest else np.zeros(1)
        ends = last[known][0, place] if place else np.zeros(1)
        table_WX = np.zeros((n_symbols**known, n_symbols + 1))
        table_WX[:, :-1] = goes_on.reshape(-1, n_symbols) if goes_on.size > 1 else 0
        table_WX[:, -1] = ends
        tables.append(table_WX)
    return tables


def side_by_side(first_W: Floats, second_W: Floats) -> Floats:
    """p(two windows, one after the other) of parts that do not depend on each other."""
    return np.outer(first_W, second_W).ravel()


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the excess of each depth, and a line for each reader."""
    sketch = draw_bars(BarsConfig(type="bars", title=figure.title, y="excess"), results)
    readers = results[0].measured["readers"]
    [axes] = sketch.figure.axes
    axes.set_xlim(0, 1.08 * max(readers.values()))
    for k, excess in enumerate(readers.values()):
        axes.axvline(excess, color="black", linestyle=":", linewidth=1)
        axes.text(excess, 0.02, f" {k}", transform=axes.get_xaxis_transform(), size=8)
    words = "Dotted: the best readers who know the place and the last 0 to 6 symbols, and cannot parse."
    rows = [[name, f"{excess:.4f}", f"{excess / results[0].floor:.2%}"] for name, excess in readers.items()]
    return Sketch(sketch.figure, f"{sketch.caption} {words}", table(["reader", "excess", "of the floor"], rows))

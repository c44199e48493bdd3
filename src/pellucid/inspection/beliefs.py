"""What a model believes about a hidden state: a linear map from its vectors, beside the exact beliefs.

The best reader of a hidden Markov model keeps the probability of each hidden state (`languages/hidden.py`). If a linear
map reads these probabilities from a layer's vectors, in documents that it was not fitted on, then the layer has them
(Shai et al. 2024). But the last few symbols alone tell much of the state, so what they tell is measured, too.

Shapes: N symbols of all documents, D the width of a layer, S hidden states.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pellucid.inspection.embed import layers_of_texts
from pellucid.languages.hidden import Hidden
from pellucid.languages.symbols import symbols_of
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

Points = NDArray[np.float64]
LAST_SYMBOLS = (1, 2, 3, 4)


class Beliefs(NamedTuple):
    """Beliefs after each symbol of documents that no map was fitted on: the truth (N, S), and what each layer gives."""

    truth: Points
    layers: dict[str, Points]  # by name: embedding, block 1, …, the last norm
    last_symbols: dict[int, Points]  # by n: the mean belief after these n symbols

    def explained(self, read: Points) -> float:
        """The share of the beliefs' variance that a reading explains (R²)."""
        spread = ((self.truth - self.truth.mean(axis=0)) ** 2).sum()
        return float(1 - ((read - self.truth) ** 2).sum() / spread)


def read_beliefs(model: LanguageModel, tokenizer: Tokenizer, language: Hidden, n_documents: int) -> Beliefs:
    """Fit a map for each layer on the first half of some fresh documents, and read the other half with it.

    Each symbol must be one token.
    """
    rng = random.Random("beliefs")
    texts = [language.write(rng) for _ in range(n_documents)]
    half = n_documents // 2
    beliefs = [np.array(language.beliefs(text)) for text in texts]
    fitted, truth = np.concatenate(beliefs[:half]), np.concatenate(beliefs[half:])
    layers = []
    for layer in zip(*layers_of_texts(model, tokenizer, texts), strict=True):
        assert len(layer[0]) == len(beliefs[0]), "each symbol is one token"
        weights, *_ = np.linalg.lstsq(_with_ones(layer[:half]), fitted, rcond=None)
        layers.append(_with_ones(layer[half:]) @ weights)
    names = ["embedding", *(f"block {n}" for n in range(1, len(layers) - 1)), "the last norm"]
    by_symbols = {n: _mean_beliefs(texts[:half], fitted, texts[half:], n) for n in LAST_SYMBOLS}
    return Beliefs(truth, dict(zip(names, layers, strict=True)), by_symbols)


def _with_ones(vectors: Sequence[NDArray[np.float32]]) -> Points:
    """The vectors of all texts with a constant, for the map's bias: (N, D + 1)."""
    together = np.concatenate(vectors)
    return np.hstack([together, np.ones((len(together), 1))]).astype(np.float64)


def _mean_beliefs(texts: Sequence[str], beliefs: Points, others: Sequence[str], n: int) -> Points:
    """The mean belief after the last n symbols in the first texts, for each symbol of the others."""
    of_symbols: dict[tuple[str, ...], list[Points]] = defaultdict(list)
    for last, belief in zip(_last_symbols(texts, n), beliefs, strict=True):
        of_symbols[last].append(belief)
    means = {last: np.mean(found, axis=0) for last, found in of_symbols.items()}
    everywhere = beliefs.mean(axis=0)
    return np.array([means.get(last, everywhere) for last in _last_symbols(others, n)])


def _last_symbols(texts: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """The last n symbols, or as many as there are, at each symbol of the texts."""
    rows = [symbols_of(text) for text in texts]
    return [tuple(row[max(0, end - n) : end]) for row in rows for end in range(1, len(row) + 1)]

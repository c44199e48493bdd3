"""Beliefs about a hidden state: a linear map from its vectors, beside the exact beliefs.

The best reader of a hidden Markov model keeps the probability of each hidden state (`languages/hidden.py`). If a linear
map reads these probabilities from a layer's vectors, in documents that it was not fitted on, then the layer has them
(Shai et al. 2024). But the last few symbols alone tell much of the state, and so does a linear filter, which adds up
all symbols with a weight for each distance. So what these tell is measured, too.

Shapes: T tokens, N points of the residual stream, D its width, S hidden states.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.inspection.embed import layers_of_texts
from pellucid.inspection.explain import beginning_that_fits
from pellucid.inspection.trace import trace
from pellucid.languages.hidden import Hidden
from pellucid.languages.symbols import symbols_of
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer

Points = NDArray[np.float64]
LAST_SYMBOLS = (1, 2, 3, 4, 6)


class BeliefMaps(NamedTuple):
    """A linear map for each point of the residual stream (N, D + 1, S), and its R² on other documents."""

    weights: Points
    explained: list[float]

    def read(self, residuals_NTD: Tensor) -> Points:
        """The beliefs at each point and token of a trace: (N, T, S)."""
        return _with_ones(residuals_NTD.numpy()) @ self.weights


def belief_maps(model: Decoder, tokenizer: Tokenizer, language: Hidden, n_documents: int) -> BeliefMaps:
    """Fit a map for each point of the residual stream on the first half of some fresh documents.

    The first token, before any symbol, counts too: there the belief is the stationary distribution.
    """
    rng = random.Random("beliefs")
    texts = [language.write(rng) for _ in range(n_documents)]
    fits = [beginning_that_fits(tokenizer, text, model.context_length - 1) for text in texts]
    traces = [trace(model, [tokenizer.end_of_text, *tokenizer.encode(text)]).residuals.numpy() for text in fits]
    beliefs = [np.array([language.stationary, *language.beliefs(text)]) for text in fits]
    half = n_documents // 2
    fitted, other = (_with_ones(np.concatenate(part, axis=1)) for part in (traces[:half], traces[half:]))
    truth = np.concatenate(beliefs[half:])
    weights = np.array([np.linalg.lstsq(point, np.concatenate(beliefs[:half]), rcond=None)[0] for point in fitted])
    return BeliefMaps(weights, [_explained(truth, read) for read in other @ weights])


class Beliefs(NamedTuple):
    """Beliefs after each symbol of documents that no map was fitted on: the truth, and what each layer gives."""

    truth: Points
    layers: dict[str, Points]  # by name: embedding, block 1, …, the last norm
    last_symbols: dict[int, Points]  # by n: the mean belief after these n symbols
    linear_filter: Points  # a linear map of all symbols so far, each by its distance

    def explained(self, read: Points) -> float:
        """The share of the beliefs' variance that a reading explains (R²)."""
        return _explained(self.truth, read)


def read_beliefs(model: LanguageModel, tokenizer: Tokenizer, language: Hidden, n_documents: int) -> Beliefs:
    """Fit a map for each layer on the first half of some fresh documents, and read the other half with it.

    ConfigError unless each symbol is one token.
    """
    rng = random.Random("beliefs")
    texts = [language.write(rng) for _ in range(n_documents)]
    half = n_documents // 2
    beliefs = [np.array(language.beliefs(text)) for text in texts]
    fitted, truth = np.concatenate(beliefs[:half]), np.concatenate(beliefs[half:])
    layers = []
    for layer in zip(*layers_of_texts(model, tokenizer, texts), strict=True):
        if len(layer[0]) != len(beliefs[0]):
            what = f"{len(beliefs[0])} symbols are {len(layer[0])} tokens, and beliefs are read symbol by symbol"
            raise ConfigError("tokenizer", what, "take byte pairs with a vocabulary in which each symbol is a token")
        weights, *_ = np.linalg.lstsq(_with_ones(np.concatenate(layer[:half])), fitted, rcond=None)
        layers.append(_with_ones(np.concatenate(layer[half:])) @ weights)
    names = ["embedding", *(f"block {n}" for n in range(1, len(layers) - 1)), "the last norm"]
    by_symbols = {n: _mean_beliefs(texts[:half], fitted, texts[half:], n) for n in LAST_SYMBOLS}
    weights, *_ = np.linalg.lstsq(_by_distance(texts[:half], language), fitted, rcond=None)
    linear_filter = _by_distance(texts[half:], language) @ weights
    return Beliefs(truth, dict(zip(names, layers, strict=True)), by_symbols, linear_filter)


def _explained(truth: Points, read: Points) -> float:
    spread = ((truth - truth.mean(axis=0)) ** 2).sum()
    return float(1 - ((read - truth) ** 2).sum() / spread)


def _with_ones(vectors: NDArray[np.float32]) -> Points:
    """The vectors (…, D) with a constant, for the map's bias: (…, D + 1)."""
    return np.concatenate([vectors, np.ones((*vectors.shape[:-1], 1))], axis=-1).astype(np.float64)


def _mean_beliefs(texts: Sequence[str], beliefs: Points, others: Sequence[str], n: int) -> Points:
    """The mean belief after the last n symbols in the first texts, for each symbol of the others."""
    of_symbols: dict[tuple[str, ...], list[Points]] = defaultdict(list)
    for last, belief in zip(_last_symbols(texts, n), beliefs, strict=True):
        of_symbols[last].append(belief)
    means = {last: np.mean(found, axis=0) for last, found in of_symbols.items()}
    everywhere = beliefs.mean(axis=0)
    return np.array([means.get(last, everywhere) for last in _last_symbols(others, n)])


def _by_distance(texts: Sequence[str], language: Hidden) -> Points:
    """At each symbol of the texts: which symbol stands at each distance before it, as 0 and 1, and a constant."""
    n, rows = len(language.names), []
    for text in texts:
        one_hot_TX = np.eye(n)[[language.names.index(symbol) for symbol in symbols_of(text)]]
        length = len(one_hot_TX)
        shifted = [np.pad(one_hot_TX, ((distance, 0), (0, 0)))[:length] for distance in range(language.length)]
        rows.append(np.concatenate(shifted, axis=1))
    return _with_ones(np.concatenate(rows))


def _last_symbols(texts: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """The last n symbols, or as many as there are, at each symbol of the texts."""
    rows = [symbols_of(text) for text in texts]
    return [tuple(row[max(0, end - n) : end]) for row in rows for end in range(1, len(row) + 1)]

"""A proof that a score is impossible, and what a score says about invention.

Let p be the truth and q any model that was fixed before the documents x were drawn. The mean over p of q(x) / p(x) is
the probability that q gives to possible texts, so it is at most 1, and so is that of a product over documents. By
Markov's inequality, a total excess of -t nats or less has a probability of at most exp(-t), whatever the model.

Shapes: N tokens of F documents, fables for instance.
"""

import math

import numpy as np
from numpy.typing import NDArray

from pellucid.evaluation.estimate import Estimate, Floats, mean_of

IMPOSSIBLE = 0.01  # a score that an honest model reaches less often than this is refused


def chance_of(excess_nats: float) -> float:
    """At most how often an honest model has so low a total excess: 1 above the floor, exp(excess) below it."""
    return math.exp(min(0.0, excess_nats))


def impossible_mass(excess_F: Floats) -> Estimate:
    """The share of a model's probability that lies on texts which the language cannot have: 1 - E[exp(-excess)].

    Held-out documents tell it, though the model has written nothing. A possible text in other tokens than the
    tokenizer's counts as impossible.
    """
    kept = mean_of(np.exp(-excess_F))
    return Estimate(1 - kept.mean, kept.half_width)


def by_document(values_N: Floats, places_N: NDArray[np.int64], boundaries: NDArray[np.int64]) -> Floats:
    """The sum of the values of each document that has tokens at these places of its file."""
    _, document_N = np.unique(np.searchsorted(boundaries, places_N, side="right"), return_inverse=True)
    return np.bincount(document_N, values_N).astype(np.float64)

"""Means over documents, with 95 % confidence intervals.

Documents are drawn independently, but the tokens of one are alike: so the sample size is the number of documents.

Shapes: F documents, fables for instance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NORMAL_95 = 1.96  # standard errors to each side


@dataclass(frozen=True)
class Estimate:
    """A mean, and the half width of its 95 % interval."""

    mean: float
    half_width: float

    def to_json(self) -> dict[str, float]:
        return {"mean": self.mean, "half_width": self.half_width}

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ±{self.half_width:.2f}"


def mean_of(values_F: Floats) -> Estimate:
    """The mean of one number per document. Its interval assumes a normal distribution: a few dozen of them or more."""
    deviation = float(values_F.std(ddof=1)) if len(values_F) > 1 else float("nan")
    return Estimate(float(values_F.mean()), NORMAL_95 * deviation / len(values_F) ** 0.5)


def ratio(sums_F: Floats, weights_F: Floats) -> Estimate:
    """Σ sums / Σ weights: a mean over items, of which documents have different numbers (Cochran 1977, section 2.11)."""
    total = weights_F.sum()
    mean = sums_F.sum() / total
    surplus_F = sums_F - mean * weights_F
    variance = (surplus_F**2).sum() * len(sums_F) / max(len(sums_F) - 1, 1) / total**2
    return Estimate(float(mean), NORMAL_95 * float(variance) ** 0.5)

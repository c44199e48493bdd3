"""How often the interval of a contest holds the true excess, for models whose excess is known.

Remakes: coverage
Takes: half a minute
Needs: nothing

Documents with a floor of 75 nats, on which a model loses some 0.25 nats; and, if it has rare faults, many more in a few
documents. The interval is that of `pellucid contest`.
"""

from collections.abc import Iterator

import numpy as np
from results import Entry

from pellucid.evaluation.estimate import ratio

FAULTS = {  # how often, and how many nats
    "no rare faults": (0.0, 0.0),
    "12 nats in one of 500 documents": (1 / 500, 12.0),
    "20 nats in one of 2,000 documents": (1 / 2000, 20.0),
}
N_DOCUMENTS = (1000, 5000, 20000)
FLOOR, EXCESS, SPREAD = 75.0, 0.25, 0.1  # nats per document


def measure(*, contests: int = 1000) -> Iterator[Entry]:
    rng = np.random.default_rng(0)
    rows: dict[str, dict[str, float]] = {}
    for name, (rate, nats) in FAULTS.items():
        true = 100 * (EXCESS + rate * nats) / FLOOR
        rows[name] = {}
        for n in N_DOCUMENTS:
            held = 0
            for _ in range(contests):
                excess_F = rng.normal(EXCESS, SPREAD, n) + nats * (rng.random(n) < rate)
                estimate = ratio(100 * excess_F, np.full(n, FLOOR))
                held += abs(estimate.mean - true) <= estimate.half_width
            rows[name][f"{n:,} documents (%)"] = round(100 * held / contests, 1)
    yield Entry("coverage", rows, where="on paper", numbers="fp64")

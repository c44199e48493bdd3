"""Uncertainty of a fitted law: the same fit to resampled runs, and to fewer runs (Efron 1979)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pellucid.experiments.laws.power_laws import (
    Array,
    Indices,
    PowerLaw,
    fit_law,
    frontier,
    refit_law,
    require_enough_sizes,
)

# For each law; then each end of a 90 % interval rests on about ten resamples.
N_RESAMPLES = 200


@dataclass(frozen=True)
class Fit:
    """The law fitted to all runs, and those fitted to bootstrap resamples of the runs.

    n_failed: resamples with too few different runs for a fit, which were drawn again.
    """

    law: PowerLaw
    resamples: list[PowerLaw]
    n_failed: int

    def interval(self, quantity: Callable[[PowerLaw], float], level: float = 0.9) -> tuple[float, float]:
        """Efron's percentile interval: the range of the quantity's middle values, of share `level`."""
        tails = [50 * (1 - level), 50 * (1 + level)]
        low, high = np.percentile([quantity(law) for law in self.resamples], tails)
        return float(low), float(high)


def fit_frontier(flops: Array, loss: Array, *, irreducible: float | None = None) -> Fit:
    """L(C) fitted to the compute-efficient runs; each resample of all runs has its own frontier."""

    def best(runs: Indices) -> Indices:
        return runs[frontier(flops[runs], loss[runs])]

    return fit_with_resamples(flops[:, None], loss, best, irreducible=irreducible)


def fit_with_resamples(
    sizes_RK: Array, loss: Array, chosen: Callable[[Indices], Indices] = np.asarray, *, irreducible: float | None = None
) -> Fit:
    """`fit_law` to the runs that `chosen` picks, of all runs and of N_RESAMPLES draws with replacement.

    Raises ValueError if there are too few runs, or too few in nearly all draws.
    """
    n_runs = len(loss)
    runs = chosen(np.arange(n_runs))
    law = fit_law(sizes_RK[runs], loss[runs], irreducible=irreducible)
    random = np.random.default_rng(0)
    weights: list[Array] = []
    n_failed = 0
    while len(weights) < N_RESAMPLES:
        drawn = chosen(random.integers(n_runs, size=n_runs))
        try:
            require_enough_sizes(sizes_RK[drawn], irreducible)
        except ValueError:
            n_failed += 1
            if n_failed == 20 * N_RESAMPLES:
                what = f"nearly every resample of {n_runs} runs has too few different runs; make more runs"
                raise ValueError(what) from None
            continue
        weights.append(np.bincount(drawn, minlength=n_runs).astype(float))
    return Fit(law, refit_law(law, sizes_RK, loss, np.array(weights), irreducible=irreducible), n_failed)


# A law with three unknowns passes through any three points; only a fourth can show its error.
SHORTEST_FRONTIER = 4


def fits_of_fewer_runs(flops: Array, loss: Array, *, cheapest: bool) -> dict[int, Fit]:
    """Fits to the n cheapest or most expensive runs, by n, from 4 to all (at most ten such n).

    They show how many runs it takes to find L_inf, and whether small ones mislead. An n with fewer than 4
    compute-efficient runs is left out. Raises ValueError if none is left.
    """
    order = np.argsort(flops if cheapest else -flops, kind="stable")
    fits = {}
    for n_runs in np.unique(np.linspace(SHORTEST_FRONTIER, len(flops), 10).round().astype(int)).tolist():
        runs = order[:n_runs]
        if len(frontier(flops[runs], loss[runs])) >= SHORTEST_FRONTIER:
            fits[n_runs] = fit_frontier(flops[runs], loss[runs])
    if not fits:
        raise ValueError(
            f"{len(frontier(flops, loss))} of {len(flops)} runs are compute-efficient (none cheaper is as good); "
            f"a scaling law takes {SHORTEST_FRONTIER} or more: make larger runs"
        )
    return fits

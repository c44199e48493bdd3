"""How certain a fitted law is: the same fit to resampled runs, and to fewer runs (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from pellucid.experiments.laws.power_laws import (
    Array,
    ComputeLaw,
    Indices,
    ParameterDataLaw,
    fit_frontier_law,
    frontier,
    refit_compute_law,
    refit_parameter_data_law,
    require_enough_sizes,
)

Law = TypeVar("Law")

# Of each fitted law. Each end of a 90 % interval then rests on about ten resamples.
N_RESAMPLES = 200


@dataclass(frozen=True)
class Bootstrap(Generic[Law]):
    """Laws fitted to runs drawn again with replacement: how much the fit depends on which runs happened to be made.

    n_failed: draws that held too few different runs for a fit, and were drawn again.
    """

    laws: tuple[Law, ...]
    n_failed: int

    def interval(self, quantity: Callable[[Law], float], level: float = 0.9) -> tuple[float, float]:
        """The middle share `level` of the quantity's values (Efron's percentile interval)."""
        tails = [50 * (1 - level), 50 * (1 + level)]
        low, high = np.percentile([quantity(law) for law in self.laws], tails)
        return float(low), float(high)


def bootstrap_frontier_law(
    law: ComputeLaw, flops: Array, loss: Array, *, irreducible: float | None = None
) -> Bootstrap[ComputeLaw]:
    """Each resample of all runs has its own frontier and its own fit, searched from `law`, the fit to all."""
    n_unknowns = 3 if irreducible is None else 2

    def weights(drawn: Indices) -> Array | None:
        best = drawn[frontier(flops[drawn], loss[drawn])]
        return np.bincount(best, minlength=len(flops)).astype(float) if len(best) >= n_unknowns else None

    weights_SR, n_failed = _resampled(len(flops), weights)
    return Bootstrap(tuple(refit_compute_law(law, flops, loss, weights_SR, irreducible=irreducible)), n_failed)


def bootstrap_parameter_data_law(
    law: ParameterDataLaw, parameters: Array, tokens: Array, loss: Array
) -> Bootstrap[ParameterDataLaw]:
    """Each resample of all runs has its own fit, searched from `law`, the fit to all."""

    def weights(drawn: Indices) -> Array | None:
        try:
            require_enough_sizes(parameters[drawn], tokens[drawn])
        except ValueError:
            return None
        return np.bincount(drawn, minlength=len(loss)).astype(float)

    weights_SR, n_failed = _resampled(len(loss), weights)
    return Bootstrap(tuple(refit_parameter_data_law(law, parameters, tokens, loss, weights_SR)), n_failed)


def _resampled(n_runs: int, weights: Callable[[Indices], Array | None]) -> tuple[Array, int]:
    """N_RESAMPLES draws of all runs with replacement, as how often each run counts; and how many draws failed.

    `weights` is None where a draw has too few different runs. Raises ValueError if nearly all draws fail.
    """
    random = np.random.default_rng(0)
    draws = (weights(random.integers(n_runs, size=n_runs)) for _ in range(20 * N_RESAMPLES))
    found, n_failed = [], 0
    for drawn in draws:
        if drawn is None:
            n_failed += 1
        else:
            found.append(drawn)
        if len(found) == N_RESAMPLES:
            return np.array(found), n_failed
    raise ValueError(f"nearly every resample of {n_runs} runs has too few different runs; make more runs")


@dataclass(frozen=True)
class PartialFit:
    """L_inf (nats per token) fitted to n_runs of the runs, with its 90 % interval."""

    n_runs: int
    irreducible: float
    low: float
    high: float


# A law with three unknowns passes through any three points: only a fourth can show how wrong it is.
SHORTEST_FRONTIER = 4


def fits_of_cheapest_runs(flops: Array, loss: Array, *, max_fits: int = 10) -> Sequence[PartialFit]:
    """How many runs it takes to find L_inf: fits to the n cheapest, n from 4 to all (at most `max_fits` such n).

    An n with fewer than 4 compute-efficient runs is left out. Raises ValueError if that leaves none.
    """
    return _fits_of_first(np.argsort(flops, kind="stable"), flops, loss, max_fits)


def fits_of_most_expensive_runs(flops: Array, loss: Array, *, max_fits: int = 10) -> Sequence[PartialFit]:
    """The same for the n most expensive runs: a law may hold only beyond some size, and small runs mislead."""
    return _fits_of_first(np.argsort(-flops, kind="stable"), flops, loss, max_fits)


def _fits_of_first(order: Indices, flops: Array, loss: Array, max_fits: int) -> Sequence[PartialFit]:
    fits = []
    for n_runs in np.unique(np.linspace(SHORTEST_FRONTIER, len(flops), max_fits).round().astype(int)).tolist():
        runs = order[:n_runs]
        if len(frontier(flops[runs], loss[runs])) >= SHORTEST_FRONTIER:
            law = fit_frontier_law(flops[runs], loss[runs])
            resamples = bootstrap_frontier_law(law, flops[runs], loss[runs])
            fits.append(PartialFit(n_runs, law.irreducible, *resamples.interval(lambda law: law.irreducible)))
    if not fits:
        raise ValueError(
            f"{len(frontier(flops, loss))} of {len(flops)} runs are compute-efficient (none cheaper is as good); "
            f"a scaling law takes {SHORTEST_FRONTIER} or more: make larger runs"
        )
    return fits

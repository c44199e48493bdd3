"""Scaling laws: how loss falls with compute, with parameters and with data, and to what floor.

Both laws are a floor plus falling powers, and both are fitted as Hoffmann et al. 2022 ("Chinchilla", section 3.3) do.
Arrays are one number per run: flops (training compute), loss (nats per token), parameters, tokens (read in training).
Fables' floor is known exactly, so here a fit can be held against the truth: docs/equations.md, equation 18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Residuals of log loss above a thousandth count linearly, not squared, so no single run dominates the fit.
HUBER_DELTA = 1e-3


@dataclass(frozen=True)
class ComputeLaw:
    """L(C) = L_inf + a C^-b, for the best loss that compute C (FLOP) can buy.

    irreducible: L_inf, scale: a, both nats per token; exponent: b.
    """

    irreducible: float
    scale: float
    exponent: float

    def __call__(self, flops: Array) -> Array:
        return self.irreducible + self.scale * flops**-self.exponent


@dataclass(frozen=True)
class ParameterDataLaw:
    """L(N, D) = L_inf + A / N^alpha + B / D^beta for N parameters and D tokens (Hoffmann et al. 2022, equation 2)."""

    irreducible: float
    parameter_scale: float
    parameter_exponent: float
    token_scale: float
    token_exponent: float

    def __call__(self, parameters: Array, tokens: Array) -> Array:
        by_parameters = self.parameter_scale * parameters**-self.parameter_exponent
        by_tokens = self.token_scale * tokens**-self.token_exponent
        return self.irreducible + by_parameters + by_tokens

    @property
    def compute_exponent(self) -> float:
        """b of L(C), if compute C ~ N D is split in the best way: alpha beta / (alpha + beta) (their equation 4)."""
        alpha, beta = self.parameter_exponent, self.token_exponent
        return alpha * beta / (alpha + beta)


def frontier(flops: Array, loss: Array) -> Indices:
    """The compute-efficient runs, by rising compute: no other run has a lower loss for the same compute or less.

    Their loss falls strictly, and of equal runs one stays. The frontier takes the luckiest seed of each size, so its
    loss is a little lower than the mean.
    """
    by_compute = np.lexsort((loss, flops))
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], loss[by_compute][:-1]]))
    return by_compute[loss[by_compute] < best_before]


def fit_compute_law(flops: Array, loss: Array, *, irreducible: float | None = None) -> ComputeLaw:
    """The best fit to these runs, which should be a frontier.

    With `irreducible` given, L_inf is held there, and scale and exponent alone are fitted.
    Raises ValueError for fewer amounts of compute than the law has unknowns: 3, or 2 with L_inf given.
    """
    n_unknowns = 3 if irreducible is None else 2
    _require_distinct(flops, n_unknowns, "amounts of compute on the frontier")
    return _compute_law(_fit(flops[:, None], loss, irreducible))


def fit_frontier_law(flops: Array, loss: Array, *, irreducible: float | None = None) -> ComputeLaw:
    """`fit_compute_law` on the compute-efficient runs among these."""
    best = frontier(flops, loss)
    return fit_compute_law(flops[best], loss[best], irreducible=irreducible)


def refit_compute_law(
    law: ComputeLaw, flops: Array, loss: Array, weights_SR: Array, *, irreducible: float | None = None
) -> list[ComputeLaw]:
    """S fits near `law`: in the s-th, run r counts weights_SR[s, r] times, 0 being not at all."""
    near = FloorAndPowers(law.irreducible, (law.scale,), (law.exponent,))
    return [_compute_law(found) for found in _refit(near, flops[:, None], loss, weights_SR, irreducible)]


def fit_parameter_data_law(parameters: Array, tokens: Array, loss: Array) -> ParameterDataLaw:
    """The best fit to these runs. Raises ValueError for fewer than 5 runs, or than 3 sizes or amounts of tokens.

    parameters: give those without the embedding. In small models the embedding table is most of the parameters, and
    loss follows the rest far more closely (Kaplan et al. 2020, section 3.1).
    """
    require_enough_sizes(parameters, tokens)
    return _parameter_data_law(_fit(np.stack([parameters, tokens], axis=1), loss, None))


def refit_parameter_data_law(
    law: ParameterDataLaw, parameters: Array, tokens: Array, loss: Array, weights_SR: Array
) -> list[ParameterDataLaw]:
    """S fits near `law`: in the s-th, run r counts weights_SR[s, r] times, 0 being not at all."""
    scales = law.parameter_scale, law.token_scale
    near = FloorAndPowers(law.irreducible, scales, (law.parameter_exponent, law.token_exponent))
    sizes_RK = np.stack([parameters, tokens], axis=1)
    return [_parameter_data_law(found) for found in _refit(near, sizes_RK, loss, weights_SR, None)]


def require_enough_sizes(parameters: Array, tokens: Array) -> None:
    """Raises ValueError if these runs do not determine the five unknowns of L(N, D)."""
    _require_distinct(parameters, 3, "model sizes")
    _require_distinct(tokens, 3, "amounts of training tokens")
    _require_distinct(parameters + 1j * tokens, 5, "pairs of model size and tokens")


def _require_distinct(values: Sequence[float] | Array, n_needed: int, what: str) -> None:
    n_distinct = len(np.unique(values))
    if n_distinct < n_needed:
        raise ValueError(f"{n_distinct} {what} are too few to fit a scaling law; it takes {n_needed} or more")


def _compute_law(found: FloorAndPowers) -> ComputeLaw:
    return ComputeLaw(found.floor, found.scales[0], found.exponents[0])


def _parameter_data_law(found: FloorAndPowers) -> ParameterDataLaw:
    (A, B), (alpha, beta) = found.scales, found.exponents
    return ParameterDataLaw(found.floor, A, alpha, B, beta)


# The search.   R runs   K kinds of size   U = 2 K + 1 unknowns: the logarithm of each power's scale, that of its
# exponent (so that both stay positive), and last the floor.

# Far beyond what any experiment finds; they keep a search that diverges from overflowing.
SCALE_RANGE_NATS = 1e-9, 1e9
EXPONENT_RANGE = 1e-3, 10.0


class FloorAndPowers(NamedTuple):
    """L = floor + sum over kinds of size of scale size^-exponent; floor and scales in nats per token."""

    floor: float
    scales: tuple[float, ...]
    exponents: tuple[float, ...]


def _fit(sizes_RK: Array, loss_R: Array, floor: float | None) -> FloorAndPowers:
    """The best fit from a grid of starts: floors from nothing to nearly all, powers shallow to steep."""
    if not np.all(loss_R > 0):
        raise ValueError(f"a loss of {loss_R.min():g} nats per token has no logarithm; leave that run out")
    K = sizes_RK.shape[1]
    found = []
    for share, *exponents in product((0.1, 0.5, 0.95), *[(0.05, 0.15, 0.4, 1.2)] * K):
        start_floor = share * loss_R.min() if floor is None else floor
        scale = max(np.median(loss_R) - start_floor, 0.01 * loss_R.min()) / K
        start_U = np.array([*[np.log(scale)] * K, *np.log(exponents), start_floor])
        found.append(_search(start_U, sizes_RK, loss_R, np.ones(len(loss_R)), floor))
    return _floor_and_powers(min(found, key=lambda each: each.fun).x, sizes_RK)


def _refit(
    near: FloorAndPowers, sizes_RK: Array, loss_R: Array, weights_SR: Array, floor: float | None
) -> list[FloorAndPowers]:
    log_scales_K = np.log(near.scales) - np.array(near.exponents) * np.log(sizes_RK).mean(axis=0)
    start_U = np.array([*log_scales_K, *np.log(near.exponents), near.floor])
    searches = (_search(start_U, sizes_RK, loss_R, weights_R, floor) for weights_R in weights_SR)
    return [_floor_and_powers(found.x, sizes_RK) for found in searches]


def _search(
    start_U: Array, sizes_RK: Array, loss_R: Array, weights_R: Array, floor: float | None
) -> scipy.optimize.OptimizeResult:
    """The least Huber loss of log residuals by L-BFGS, as Hoffmann et al. search it; a given floor stays.

    A floor that is searched is not negative, as no loss is. It may come out above the lowest loss of a run: such a law
    refutes itself, which a bound there would hide.
    """
    K = sizes_RK.shape[1]
    floor_range = (0.0, None) if floor is None else (floor, floor)
    bounds = [*[tuple(np.log(SCALE_RANGE_NATS))] * K, *[tuple(np.log(EXPONENT_RANGE))] * K, floor_range]
    return scipy.optimize.minimize(
        _cost_and_slope,
        start_U,
        args=(_centred(sizes_RK), np.log(loss_R), weights_R),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 1000, "maxfun": 3000, "ftol": 1e-13, "gtol": 1e-8},
    )


def _cost_and_slope(unknowns_U: Array, log_sizes_RK: Array, log_loss_R: Array, weights_R: Array) -> tuple[float, Array]:
    """The Huber loss of how far the law's log loss lies above each run's, in units of HUBER_DELTA; its gradient."""
    log_scales_K, log_exponents_K = unknowns_U[:-1].reshape(2, -1)
    exponents_K = np.exp(log_exponents_K)
    powers_RK = np.exp(log_scales_K - exponents_K * log_sizes_RK)
    law_R = unknowns_U[-1] + powers_RK.sum(axis=1)
    residuals_R = (np.log(law_R) - log_loss_R) / HUBER_DELTA
    by_unknown_RU = np.column_stack([powers_RK, -powers_RK * exponents_K * log_sizes_RK, np.ones_like(law_R)])
    slope_R = weights_R * np.clip(residuals_R, -1, 1) / HUBER_DELTA / law_R  # of the cost by each run's loss
    return float(weights_R @ scipy.special.huber(1.0, residuals_R)), slope_R @ by_unknown_RU


def _centred(sizes_RK: Array) -> Array:
    """Logarithms of the sizes divided by their geometric mean, so that all scales are of the order of the loss."""
    logs_RK = np.log(sizes_RK)
    return np.asarray(logs_RK - logs_RK.mean(axis=0))


def _floor_and_powers(unknowns_U: Array, sizes_RK: Array) -> FloorAndPowers:
    log_scales_K, log_exponents_K = unknowns_U[:-1].reshape(2, -1)
    exponents_K = np.exp(log_exponents_K)
    scales_K = np.exp(log_scales_K + exponents_K * np.log(sizes_RK).mean(axis=0))
    return FloorAndPowers(float(unknowns_U[-1]), tuple(scales_K.tolist()), tuple(exponents_K.tolist()))

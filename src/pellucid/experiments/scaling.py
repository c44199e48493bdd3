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
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Residuals of log loss beyond a thousandth count by their size, not its square, so that no one run rules the fit.
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
    """The law nearest to these runs, which should be a frontier.

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
    """S fits near `law`, all at once: in the s-th, run r counts weights_SR[s, r] times, 0 being not at all."""
    near = FloorAndPowers(law.irreducible, (law.scale,), (law.exponent,))
    return [_compute_law(found) for found in _refit(near, flops[:, None], loss, weights_SR, irreducible)]


def fit_parameter_data_law(parameters: Array, tokens: Array, loss: Array) -> ParameterDataLaw:
    """The law nearest to these runs. Raises ValueError for fewer than 5 runs, or than 3 sizes or amounts of tokens.

    parameters: give those without the embedding. In small models the embedding table is most of the parameters, and
    loss follows the rest far more closely (Kaplan et al. 2020, section 3.1).
    """
    require_enough_sizes(parameters, tokens)
    return _parameter_data_law(_fit(np.stack([parameters, tokens], axis=1), loss, None))


def refit_parameter_data_law(
    law: ParameterDataLaw, parameters: Array, tokens: Array, loss: Array, weights_SR: Array
) -> list[ParameterDataLaw]:
    """S fits near `law`, all at once: in the s-th, run r counts weights_SR[s, r] times, 0 being not at all."""
    scales = law.parameter_scale, law.token_scale
    near = FloorAndPowers(law.irreducible, scales, (law.parameter_exponent, law.token_exponent))
    sizes_RK = np.stack([parameters, tokens], axis=1)
    return [_parameter_data_law(found) for found in _refit(near, sizes_RK, loss, weights_SR, None)]


def require_enough_sizes(parameters: Array, tokens: Array) -> None:
    """Raises ValueError if these runs do not settle the five unknowns of L(N, D)."""
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


# The search.   R runs   K kinds of size   S searches side by side   U = 2 K + 1 unknowns: the logarithm of each power's
# scale, that of its exponent (so that both stay positive), and last the floor.

# Far beyond what any experiment finds; they keep a search that goes astray from overflowing.
SCALE_RANGE_NATS = 1e-9, 1e9
EXPONENT_RANGE = 1e-3, 10.0
MOST_STEPS = 200


class FloorAndPowers(NamedTuple):
    """L = floor + sum over kinds of size of scale size^-exponent; floor and scales in nats per token."""

    floor: float
    scales: tuple[float, ...]
    exponents: tuple[float, ...]


def _fit(sizes_RK: Array, loss_R: Array, floor: float | None) -> FloorAndPowers:
    """The best that is found from a grid of starts: floors from nothing to nearly all, powers shallow to steep."""
    if not np.all(loss_R > 0):
        raise ValueError(f"a loss of {loss_R.min():g} nats per token has no logarithm; leave that run out")
    K = sizes_RK.shape[1]
    starts = []
    for share, *exponents in product((0.1, 0.5, 0.95), *[(0.05, 0.15, 0.4, 1.2)] * K):
        start_floor = share * loss_R.min() if floor is None else floor
        scale = max(np.median(loss_R) - start_floor, 0.01 * loss_R.min()) / K
        starts.append([*[np.log(scale)] * K, *np.log(exponents), start_floor])
    cost_S, unknowns_SU = _search(
        _centred(sizes_RK), np.log(loss_R), np.ones((len(starts), 1)), np.array(starts), floor
    )
    return _floor_and_powers(unknowns_SU[cost_S.argmin()], sizes_RK)


def _refit(
    near: FloorAndPowers, sizes_RK: Array, loss_R: Array, weights_SR: Array, floor: float | None
) -> list[FloorAndPowers]:
    log_scales_K = np.log(near.scales) - np.array(near.exponents) * np.log(sizes_RK).mean(axis=0)
    start_U = np.array([*log_scales_K, *np.log(near.exponents), near.floor])
    _, unknowns_SU = _search(
        _centred(sizes_RK), np.log(loss_R), weights_SR, np.tile(start_U, (len(weights_SR), 1)), floor
    )
    return [_floor_and_powers(unknowns_U, sizes_RK) for unknowns_U in unknowns_SU]


def _centred(sizes_RK: Array) -> Array:
    """Logarithms of the sizes divided by their geometric mean, so that all scales are of the order of the loss."""
    logs_RK = np.log(sizes_RK)
    return np.asarray(logs_RK - logs_RK.mean(axis=0))


def _floor_and_powers(unknowns_U: Array, sizes_RK: Array) -> FloorAndPowers:
    log_scales_K, log_exponents_K = unknowns_U[:-1].reshape(2, -1)
    exponents_K = np.exp(log_exponents_K)
    scales_K = np.exp(log_scales_K + exponents_K * np.log(sizes_RK).mean(axis=0))
    return FloorAndPowers(float(unknowns_U[-1]), tuple(scales_K.tolist()), tuple(exponents_K.tolist()))


def _search(
    log_sizes_RK: Array, log_loss_R: Array, weights_SR: Array, start_SU: Array, floor: float | None
) -> tuple[Array, Array]:
    """Least Huber loss of the log losses, and the unknowns there, of S searches side by side; a given floor stays.

    Levenberg and Marquardt's steps on reweighted squares (Nocedal & Wright 2006, sections 10.3 and 16.7): an unknown at
    its bound, pushed outwards, rests. S small searches in one array take hardly longer than one.
    """
    K = log_sizes_RK.shape[1]
    bounds_2U = np.log(np.repeat([SCALE_RANGE_NATS, EXPONENT_RANGE], K, axis=0)).T
    lowest_loss_S1 = np.exp(np.where(weights_SR > 0, log_loss_R, np.inf).min(axis=1, keepdims=True))
    low_SU = np.tile([*bounds_2U[0], 0.0], (len(start_SU), 1))
    high_SU = np.hstack([np.tile(bounds_2U[1], (len(start_SU), 1)), lowest_loss_S1])
    if floor is not None:
        low_SU[:, -1] = high_SU[:, -1] = floor
    unknowns_SU = np.clip(start_SU, low_SU, high_SU)
    residuals_SR, slopes_SRU = _residuals_and_slopes(unknowns_SU, log_sizes_RK, log_loss_R)
    cost_S, damping_S = _huber(residuals_SR, weights_SR), np.full(len(start_SU), 1e-2)
    for _ in range(MOST_STEPS):
        pull_SR = weights_SR * HUBER_DELTA / np.maximum(np.abs(residuals_SR), HUBER_DELTA)
        downhill_SU = -np.einsum("sr,sru->su", pull_SR * residuals_SR, slopes_SRU)
        rests_SU = ((unknowns_SU <= low_SU) & (downhill_SU < 0)) | ((unknowns_SU >= high_SU) & (downhill_SU > 0))
        free_SRU = np.where(rests_SU[:, None, :], 0.0, slopes_SRU)
        curvature_SUU = (free_SRU * pull_SR[:, :, None]).transpose(0, 2, 1) @ free_SRU
        diagonal_SU = np.einsum("suu->su", curvature_SUU)  # a view: what is added to it is added to the curvature
        diagonal_SU += damping_S[:, None] * diagonal_SU + 1e-12
        step_SU = np.linalg.solve(curvature_SUU, np.where(rests_SU, 0.0, downhill_SU)[:, :, None])[:, :, 0]
        trial_SU = np.clip(unknowns_SU + step_SU, low_SU, high_SU)
        trial_residuals_SR, trial_slopes_SRU = _residuals_and_slopes(trial_SU, log_sizes_RK, log_loss_R)
        trial_cost_S = _huber(trial_residuals_SR, weights_SR)
        better_S = trial_cost_S < cost_S
        moved = float(np.abs(trial_SU - unknowns_SU).max())
        unknowns_SU = np.where(better_S[:, None], trial_SU, unknowns_SU)
        residuals_SR = np.where(better_S[:, None], trial_residuals_SR, residuals_SR)
        slopes_SRU = np.where(better_S[:, None, None], trial_slopes_SRU, slopes_SRU)
        cost_S = np.where(better_S, trial_cost_S, cost_S)
        damping_S = np.clip(np.where(better_S, damping_S / 5, damping_S * 4), 1e-9, 1e12)
        if moved < 1e-6:
            break
    return cost_S, unknowns_SU


def _residuals_and_slopes(unknowns_SU: Array, log_sizes_RK: Array, log_loss_R: Array) -> tuple[Array, Array]:
    """How far the law's log loss lies above each run's, and its derivative by each unknown."""
    K = log_sizes_RK.shape[1]
    log_scales_S1K, exponents_S1K = unknowns_SU[:, None, :K], np.exp(unknowns_SU[:, None, K:-1])
    powers_SRK = np.exp(log_scales_S1K - exponents_S1K * log_sizes_RK)
    loss_SR1 = unknowns_SU[:, None, -1:] + powers_SRK.sum(axis=2, keepdims=True)
    by_log_exponents_SRK = -powers_SRK * exponents_S1K * log_sizes_RK
    slopes_SRU = np.concatenate([powers_SRK, by_log_exponents_SRK, np.ones_like(loss_SR1)], axis=2) / loss_SR1
    return np.log(loss_SR1[:, :, 0]) - log_loss_R, slopes_SRU


def _huber(residuals_SR: Array, weights_SR: Array) -> Array:
    """Squares up to HUBER_DELTA, then growing by size only; summed over runs."""
    size_SR = np.abs(residuals_SR)
    inner_SR = np.minimum(size_SR, HUBER_DELTA)
    return np.asarray((weights_SR * inner_SR * (size_SR - inner_SR / 2)).sum(axis=1))

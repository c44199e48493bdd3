"""Scaling laws: how loss falls with compute, with parameters and with data, and to what floor.

Both laws are a floor plus falling powers, fitted as in Hoffmann et al. 2022 ("Chinchilla", section 3.3). Arrays have
one number per run: flops (training compute), loss (nats per token), parameters, tokens (read in training). The floor of
Fables is known exactly, so a fit can be compared with the truth (docs/equations.md, equation 18).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Residuals of log loss above a thousandth count linearly, not squared, so no single run dominates the fit.
HUBER_DELTA = 1e-3


@dataclass(frozen=True)
class PowerLaw:
    """L = L_inf + the sum over K kinds of size of scale size^-exponent; L_inf and the scales in nats per token.

    K = 1: L(C), the best loss that compute C (FLOP) can buy. K = 2: L(N, D), for N parameters and D tokens
    (Hoffmann et al. 2022, equation 2).
    """

    irreducible: float
    scales: tuple[float, ...]
    exponents: tuple[float, ...]

    def __call__(self, *sizes: Array) -> Array:
        powers = zip(self.scales, sizes, self.exponents, strict=True)
        return np.asarray(self.irreducible + sum(scale * size**-exponent for scale, size, exponent in powers))

    @property
    def compute_exponent(self) -> float:
        """b of L(C); for L(N, D) with the best split of C ~ N D, alpha beta / (alpha + beta) (their equation 4)."""
        return 1 / sum(1 / exponent for exponent in self.exponents)


def frontier(flops: Array, loss: Array) -> Indices:
    """Indices of the compute-efficient runs, by rising compute: no other run has a lower loss for as much or less.

    Their loss falls strictly; of equal runs one is kept. The frontier takes the luckiest seed of each size, so its loss
    is a little below the mean.
    """
    by_compute = np.lexsort((loss, flops))
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], loss[by_compute][:-1]]))
    return by_compute[loss[by_compute] < best_before]


# R runs   K kinds of size   S fits to resampled runs   U = 2 K + 1 unknowns: the logarithm of each power's scale, that
# of its exponent (so that both stay positive), and last the floor.

KINDS = {1: ("amounts of compute on the frontier",), 2: ("model sizes", "amounts of training tokens")}  # by K


def fit_law(sizes_RK: Array, loss_R: Array, *, irreducible: float | None = None) -> PowerLaw:
    """The best fit from a grid of starting points.

    irreducible: a fixed value of L_inf. For L(C), give the runs of the frontier. For L(N, D), count parameters without
    the embedding: in small models it has most of them, but loss depends far more on the rest (Kaplan et al. 2020,
    section 3.1). Raises ValueError for too few runs.
    """
    require_enough_sizes(sizes_RK, irreducible)
    if not np.all(loss_R > 0):
        raise ValueError(f"a loss of {loss_R.min():g} nats per token has no logarithm; leave that run out")
    K = sizes_RK.shape[1]
    costs_and_laws = []
    for share, *exponents in product((0.1, 0.5, 0.95), *[(0.05, 0.15, 0.4, 1.2)] * K):
        floor = share * loss_R.min() if irreducible is None else irreducible
        scale = max(np.median(loss_R) - floor, 0.01 * loss_R.min()) / K
        start_U = np.array([*[np.log(scale)] * K, *np.log(exponents), floor])
        costs_and_laws.append(_search(start_U, sizes_RK, loss_R, np.ones(len(loss_R)), irreducible))
    return min(costs_and_laws, key=lambda cost_and_law: cost_and_law[0])[1]


def refit_law(
    law: PowerLaw, sizes_RK: Array, loss_R: Array, weights_SR: Array, *, irreducible: float | None = None
) -> list[PowerLaw]:
    """S fits that start from `law`: in the s-th, run r has the weight weights_SR[s, r]."""
    log_scales_K = np.log(law.scales) - np.array(law.exponents) * np.log(sizes_RK).mean(axis=0)
    start_U = np.array([*log_scales_K, *np.log(law.exponents), law.irreducible])
    return [_search(start_U, sizes_RK, loss_R, weights_R, irreducible)[1] for weights_R in weights_SR]


def require_enough_sizes(sizes_RK: Array, irreducible: float | None = None) -> None:
    """Raise ValueError if these runs do not determine the unknowns of the law."""
    K, n_each = sizes_RK.shape[1], 3 if irreducible is None else 2
    needed = [(len(np.unique(size_R)), n_each, kind) for size_R, kind in zip(sizes_RK.T, KINDS[K], strict=True)]
    needed.append((len(np.unique(sizes_RK, axis=0)), n_each + 2 * (K - 1), "pairs of model size and tokens"))
    for n_distinct, n_needed, what in needed:
        if n_distinct < n_needed:
            raise ValueError(f"{n_distinct} {what} are too few to fit a scaling law; it takes {n_needed} or more")


# Far beyond the results of any experiment; they prevent overflow in a diverging search.
SCALE_RANGE_NATS = 1e-9, 1e9
EXPONENT_RANGE = 1e-3, 10.0


def _search(
    start_U: Array, sizes_RK: Array, loss_R: Array, weights_R: Array, floor: float | None
) -> tuple[float, PowerLaw]:
    """The least Huber loss of log residuals, by L-BFGS as in Hoffmann et al., and its law; a given floor is fixed.

    A fitted floor is not negative. It may be above the lowest loss of a run: such a law refutes itself, which an upper
    bound would hide.
    """
    K = sizes_RK.shape[1]
    log_sizes_RK = np.log(sizes_RK)
    centre_K = log_sizes_RK.mean(axis=0)  # with centred sizes, all scales are of the order of the loss
    floor_range = (0.0, None) if floor is None else (floor, floor)
    optimum = scipy.optimize.minimize(
        _cost_and_slope,
        start_U,
        args=(log_sizes_RK - centre_K, np.log(loss_R), weights_R),
        jac=True,
        method="L-BFGS-B",
        bounds=[*[tuple(np.log(SCALE_RANGE_NATS))] * K, *[tuple(np.log(EXPONENT_RANGE))] * K, floor_range],
        options={"maxiter": 1000, "maxfun": 3000, "ftol": 1e-13, "gtol": 1e-8},
    )
    log_scales_K, log_exponents_K = optimum.x[:-1].reshape(2, K)
    exponents_K = np.exp(log_exponents_K)
    scales_K = np.exp(log_scales_K + exponents_K * centre_K)
    return optimum.fun, PowerLaw(float(optimum.x[-1]), tuple(scales_K.tolist()), tuple(exponents_K.tolist()))


def _cost_and_slope(unknowns_U: Array, log_sizes_RK: Array, log_loss_R: Array, weights_R: Array) -> tuple[float, Array]:
    """The Huber loss of the residuals in log loss, in units of HUBER_DELTA; and its gradient."""
    log_scales_K, log_exponents_K = unknowns_U[:-1].reshape(2, -1)
    exponents_K = np.exp(log_exponents_K)
    powers_RK = np.exp(log_scales_K - exponents_K * log_sizes_RK)
    law_R = unknowns_U[-1] + powers_RK.sum(axis=1)
    residuals_R = (np.log(law_R) - log_loss_R) / HUBER_DELTA
    by_unknown_RU = np.column_stack([powers_RK, -powers_RK * exponents_K * log_sizes_RK, np.ones_like(law_R)])
    slope_R = weights_R * np.clip(residuals_R, -1, 1) / HUBER_DELTA / law_R  # d cost / d law, run by run
    return float(weights_R @ scipy.special.huber(1.0, residuals_R)), slope_R @ by_unknown_RU

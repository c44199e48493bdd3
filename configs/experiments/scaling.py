"""Scaling laws: how loss falls with compute, with parameters and with data, and to what floor.

Three parts: the laws and their fit (Hoffmann et al. 2022, "Chinchilla", section 3.3), the uncertainty of a fit (Efron
1979), and the figure. Arrays have one number per run: flops (training compute), loss (nats per token), parameters,
tokens (read in training). The floor of Fables is known exactly, so a fit can be compared with the truth
(docs/equations.md, equation 18).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter

import numpy as np
import scipy.optimize
import scipy.special
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import axis_label
from pellucid.figures import FLOOR_STYLE, PALETTE, in_short, log_axis, log_limits, new_figure, round_ticks, ticks_at

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


# The uncertainty of a fitted law: the same fit to resampled runs, and to fewer runs.

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


# The figure: loss against compute, the fitted laws, and their floor beside the exact one.

Quantity = Callable[[PowerLaw], float]
Quantities = dict[str, Quantity]

FITTED, EXACT = PALETTE[1], PALETTE[0]
FLOOR, EXPONENT = attrgetter("irreducible"), attrgetter("compute_exponent")  # of a law
DARK_TO_BRIGHT = ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))  # without the yellow, pale on white


@dataclass(frozen=True)
class Runs:
    """Arrays of one number per run and seed. parameters: without embeddings. floor: the mean over runs."""

    flops: Array
    loss: Array
    parameters: Array
    tokens: Array
    floor: float


@dataclass(frozen=True)
class Fits:
    """The fitted laws. free: L(C); held: L(C) with L_inf fixed at the exact floor; by_size: L(N, D), or why not.

    of_cheapest, of_most_expensive: as `free`, for fewer runs, by their number.
    """

    free: Fit
    held: Fit
    by_size: Fit | str
    of_cheapest: dict[int, Fit]
    of_most_expensive: dict[int, Fit]


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw three panels: loss and the law L(C); reducible loss on logarithmic axes; L_inf by the number of runs.

    Raises ValueError if the floor is unknown or the compute-efficient runs are too few.
    """
    runs = _runs(results)
    fits = _fit(runs)
    picture = new_figure(figure.title, 9.5, 7.4)
    panels = picture.subplot_mosaic([["loss", "reducible"], ["floors", "floors"]], height_ratios=[1.6, 1])
    _draw_loss(panels["loss"], runs, fits.free)
    dots = _draw_reducible(panels["reducible"], runs, fits)
    _draw_fitted_floors(panels["floors"], runs, fits)
    scale = picture.colorbar(dots, ax=panels["reducible"], pad=0.02, label=axis_label("non_embedding_parameters"))
    sizes = sorted(set(runs.parameters.tolist()))
    ticks = sizes if ticks_at(np.log(sizes)) else round_ticks(sizes[0], sizes[-1])
    scale.set_ticks(ticks, labels=[in_short(tick) for tick in ticks])
    scale.ax.minorticks_off()
    return Sketch(
        picture,
        "Top: validation loss of every run against training compute, and reducible loss (loss minus the exact floor) "
        "on logarithmic axes, with the laws fitted to the compute-efficient runs. Bottom: the floor that the fit finds "
        "from fewer runs, the cheapest and the most expensive ones. Each dot is one run, of one seed; ranges "
        "are 90 % bootstrap intervals.",
        _table(runs, fits),
    )


def _runs(results: Sequence[RunResult]) -> Runs:
    floors = [run.floor for run in results if run.floor is not None]
    if len(floors) < len(results):
        raise ValueError("the scaling figure needs the exact floor of the loss, which only Fables knows")
    columns = [(run.flops, run.val_loss, run.non_embedding_parameters, run.tokens) for run in results]
    flops, loss, parameters, tokens = np.array(columns, dtype=float).T
    return Runs(flops, loss, parameters, tokens, float(np.mean(floors)))


def _fit(runs: Runs) -> Fits:
    of_cheapest = fits_of_fewer_runs(runs.flops, runs.loss, cheapest=True)  # first: it raises if the runs are too few
    by_size: Fit | str
    try:
        by_size = fit_with_resamples(np.stack([runs.parameters, runs.tokens], axis=1), runs.loss)
    except ValueError as error:
        by_size = str(error)
    return Fits(
        free=fit_frontier(runs.flops, runs.loss),
        held=fit_frontier(runs.flops, runs.loss, irreducible=runs.floor),
        by_size=by_size,
        of_cheapest=of_cheapest,
        of_most_expensive=fits_of_fewer_runs(runs.flops, runs.loss, cheapest=False),
    )


def _draw_loss(axes: Axes, runs: Runs, fit: Fit) -> None:
    """Draw loss against compute. The interval of L_inf may reach far below the axes."""
    law = fit.law
    compute = _compute_axis(axes, runs)
    axes.axhspan(*fit.interval(FLOOR), color=FITTED, alpha=0.15, linewidth=0)
    axes.axhline(law.irreducible, color=FITTED, linewidth=1, label=f"its L∞: {law.irreducible:.3f}, 90 % interval")
    axes.axhline(runs.floor, color="black", linestyle=FLOOR_STYLE.linestyle, label=f"exact floor: {runs.floor:.3f}")
    axes.plot(compute, law(compute), color=FITTED, linewidth=2, label="fit  L(C) = L∞ + a / Cᵇ")
    _draw_dots(axes, runs, runs.loss)
    lowest = min(runs.floor, law.irreducible, float(runs.loss.min()))
    span = float(runs.loss.max()) - lowest
    axes.set(ylim=(lowest - 0.12 * span, lowest + 1.08 * span), ylabel="validation loss (nats per token)")
    axes.legend(loc="upper right")


def _draw_reducible(axes: Axes, runs: Runs, fits: Fits) -> PathCollection:
    """Draw the reducible loss. A power law minus the right floor is a straight line; a wrong L_inf bends it."""
    free, held = fits.free.law, fits.held.law
    compute = _compute_axis(axes, runs)
    low, high = fits.held.interval(EXPONENT)
    straight = held(compute) - runs.floor
    label = f"floor known: b = {held.compute_exponent:.2f} [{low:.2f}, {high:.2f}]"
    axes.plot(compute, straight, color=EXACT, label=label)
    bent = np.ma.masked_less_equal(free(compute) - runs.floor, 0)
    axes.plot(compute, bent, color=FITTED, linestyle="--", label=f"L∞ fitted: b = {free.compute_exponent:.2f}")
    reducible = runs.loss - runs.floor
    dots = _draw_dots(axes, runs, np.where(reducible > 0, reducible, np.nan))
    log_axis(axes, "y", log_limits([*reducible, straight[-1]]))
    axes.set_ylabel("loss − exact floor (nats per token)")
    axes.legend(loc="lower left")
    return dots


def _compute_axis(axes: Axes, runs: Runs) -> Array:
    """Set up the axis of compute, and return values (FLOP) from just below the runs to ten times above them."""
    compute = np.geomspace(runs.flops.min() / 1.5, runs.flops.max() * 10, 200)
    log_axis(axes, "x", (compute[0], compute[-1]))
    axes.set_xlabel("training compute C (FLOP)")
    return compute


def _draw_dots(axes: Axes, runs: Runs, y: Array) -> PathCollection:
    """Draw each run in the colour of its size, the compute-efficient ones with a ring."""
    best = frontier(runs.flops, runs.loss)
    axes.scatter(
        runs.flops[best], y[best], s=75, facecolor="none", edgecolor="black", label="compute-efficient run", zorder=4
    )
    norm = LogNorm(0.99 * runs.parameters.min(), 1.01 * runs.parameters.max())
    return axes.scatter(runs.flops, y, s=26, c=runs.parameters, cmap=DARK_TO_BRIGHT, norm=norm, zorder=3)


def _draw_fitted_floors(axes: Axes, runs: Runs, fits: Fits) -> None:
    """Draw L_inf fitted to growing numbers of runs, from the cheapest and from the most expensive."""
    axes.axhline(runs.floor, color="black", linestyle=FLOOR_STYLE.linestyle, label="exact floor")
    each_end = (
        ("cheapest", fits.of_cheapest, -0.15, "o", FITTED),
        ("most expensive", fits.of_most_expensive, 0.15, "s", EXACT),
    )
    for which, by_n_runs, shift, marker, color in each_end:
        n_runs = np.array(list(by_n_runs)) + shift
        low, high = np.array([fit.interval(FLOOR) for fit in by_n_runs.values()]).T
        floors = [fit.law.irreducible for fit in by_n_runs.values()]
        axes.vlines(n_runs, low, high, color=color, linewidth=5, alpha=0.3)
        axes.plot(n_runs, floors, marker, color=color, label=f"L∞ from the {which} runs, 90 %")
    axes.set(xlabel="runs in the fit", ylabel="L∞ (nats per token)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper right", ncols=3)


def _table(runs: Runs, fits: Fits) -> str:
    on_frontier = f"{len(frontier(runs.flops, runs.loss))} on the frontier of {len(runs.loss)}"
    header = ["law", "L∞ (nats per token) [90 %]", "exact floor", "difference", "exponents [90 %]", "runs"]
    rows = [_row("L(C) = L∞ + a / C^b", runs, fits.free, {"b": EXPONENT}, on_frontier)]
    n_failed = fits.free.n_failed + fits.held.n_failed
    if isinstance(fits.by_size, str):
        note = f"L(N, D) is not fitted: {fits.by_size}. "
    else:
        exponents: Quantities = {
            "α": lambda law: law.exponents[0],
            "β": lambda law: law.exponents[1],
            "αβ/(α+β)": EXPONENT,
        }
        rows.append(_row("L(N, D) = L∞ + A / N^α + B / D^β", runs, fits.by_size, exponents, f"all {len(runs.loss)}"))
        n_failed += fits.by_size.n_failed
        note = "N counts the parameters without the embeddings. "
    exponent = f"b = {_interval(fits.held, EXPONENT, 2)}"
    rows.append(["L(C) = floor + a / C^b", "held at the floor", f"{runs.floor:.4f}", "–", exponent, on_frontier])
    return (
        f"{table(header, rows)}\n\n"
        f"{note}Intervals: {len(fits.held.resamples)} bootstrap resamples of the runs for each law; "
        f"{n_failed} had too few different runs and were drawn again."
    )


def _row(name: str, runs: Runs, fit: Fit, exponents: Quantities, which_runs: str) -> list[str]:
    difference = f"{100 * (fit.law.irreducible / runs.floor - 1):+.1f} %".replace("-", "−")
    fitted = ", ".join(f"{symbol} = {_interval(fit, of, 2)}" for symbol, of in exponents.items())
    return [name, _interval(fit, FLOOR, 4), f"{runs.floor:.4f}", difference, fitted, which_runs]


def _interval(fit: Fit, quantity: Quantity, digits: int) -> str:
    low, high = fit.interval(quantity)
    return f"{quantity(fit.law):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

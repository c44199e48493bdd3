"""Scaling figure: loss against compute, the fitted laws, and their floor beside the exact one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.ticker import MaxNLocator

from pellucid.config.experiment import ScalingConfig
from pellucid.experiments.figures.axis_numbers import in_short, log_axis, log_limits, round_ticks, ticks_at
from pellucid.experiments.figures.style import FLOOR_STYLE, PALETTE, Sketch, new_figure
from pellucid.experiments.laws.bootstrap import Fit, fit_frontier, fit_with_resamples, fits_of_fewer_runs
from pellucid.experiments.laws.power_laws import Array, PowerLaw, frontier
from pellucid.experiments.results import RunResult
from pellucid.experiments.table import AXIS_LABELS

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


def draw_scaling(config: ScalingConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw three panels: loss and the law L(C); reducible loss on logarithmic axes; L_inf by the number of runs.

    Raises ValueError if the floor is unknown or the compute-efficient runs are too few.
    """
    runs = _runs(results)
    fits = _fit(runs)
    figure = new_figure(config.title, 9.5, 7.4)
    panels = figure.subplot_mosaic([["loss", "reducible"], ["floors", "floors"]], height_ratios=[1.6, 1])
    _draw_loss(panels["loss"], runs, fits.free)
    dots = _draw_reducible(panels["reducible"], runs, fits)
    _draw_fitted_floors(panels["floors"], runs, fits)
    scale = figure.colorbar(dots, ax=panels["reducible"], pad=0.02, label=AXIS_LABELS["non_embedding_parameters"])
    sizes = sorted(set(runs.parameters.tolist()))
    ticks = sizes if ticks_at(np.log(sizes)) else round_ticks(sizes[0], sizes[-1])
    scale.set_ticks(ticks, labels=[in_short(tick) for tick in ticks])
    scale.ax.minorticks_off()
    return Sketch(
        figure,
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
    rows = [
        "| law | L∞ (nats per token) [90 %] | exact floor | difference | exponents [90 %] | runs |",
        "|---|---|---|---|---|---|",
        _row("L(C) = L∞ + a / C^b", runs, fits.free, {"b": EXPONENT}, on_frontier),
    ]
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
    rows.append(f"| L(C) = floor + a / C^b | held at the floor | {runs.floor:.4f} | – | {exponent} | {on_frontier} |")
    return "\n".join(rows) + (
        f"\n\n{note}Intervals: {len(fits.held.resamples)} bootstrap resamples of the runs for each law; "
        f"{n_failed} had too few different runs and were drawn again."
    )


def _row(name: str, runs: Runs, fit: Fit, exponents: dict[str, Callable[[PowerLaw], float]], which_runs: str) -> str:
    difference = f"{100 * (fit.law.irreducible / runs.floor - 1):+.1f} %".replace("-", "−")
    fitted = ", ".join(f"{symbol} = {_interval(fit, of, 2)}" for symbol, of in exponents.items())
    return f"| {name} | {_interval(fit, FLOOR, 4)} | {runs.floor:.4f} | {difference} | {fitted} | {which_runs} |"


def _interval(fit: Fit, quantity: Quantity, digits: int) -> str:
    low, high = fit.interval(quantity)
    return f"{quantity(fit.law):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

"""Figures of skills, by excess or accuracy: a coloured table, and learning curves."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from pellucid.config.experiment import SkillCurvesConfig, SkillsConfig
from pellucid.experiments.figures.means import Sketch, at_equal_steps, draw_bands, mean_lines, seeds_in_words
from pellucid.experiments.results import RunResult
from pellucid.figures import (
    NAME_WIDTH,
    in_percent,
    in_short,
    line_style,
    log_axis,
    log_limits,
    new_figure,
    plain_axis,
    round_ticks,
    wrapped,
)

LEAST_EXCESS = 1e-3  # nats per document: what is smaller has no place of its own
FIELDS = {"excess": "excess_nats_per_document", "accuracy": "accuracy"}
LABELS = {
    "excess": "excess over the floor (nats per document)",
    "accuracy": "right where one token is possible (% of tokens)",
}


def draw_skills(config: SkillsConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw a table of variants by skills; unmeasured skills are left out."""
    tables = [run.skills if config.text is None else run.texts.get(config.text, {}) for run in results]
    rows = [{skill: figures.get(FIELDS[config.y]) for skill, figures in table.items()} for table in tables]
    where = "" if config.text is None else f', in the texts "{config.text}"'
    return table_in_colours(config.title, rows, results, LABELS[config.y], where=where, is_excess=config.y == "excess")


def table_in_colours(
    title: str,
    rows: Sequence[Mapping[str, float | None]],
    results: Sequence[RunResult],
    label: str,
    *,
    where: str = "",
    is_excess: bool = False,
) -> Sketch:
    """Draw a table of variants by skills, a number and a colour in each cell: shares, unless they are an excess.

    rows: the skills of each run.   where: the texts that they were measured in, for the caption.
    """
    values = pd.DataFrame(rows, dtype=float).dropna(axis=1, how="all")
    if values.empty:
        raise ValueError(f"no run has measured of a skill: {label}; only languages with a known truth have skills")
    table = values.groupby([run.label for run in results], sort=False).mean()
    names = [wrapped(name, NAME_WIDTH) for name in table.index]
    heights_inches = [0.2 + 0.16 * len(name.splitlines()) for name in names]
    height = max(4.2, 1.5 + sum(heights_inches))  # room for the label of the colour scale
    figure = new_figure(title, 3.2 + 0.75 * len(table.columns), height)
    axes = figure.add_subplot()
    edges = np.concatenate([[0], np.cumsum(heights_inches)])
    middles = (edges[:-1] + edges[1:]) / 2
    x, means = np.arange(len(table.columns)), table.to_numpy()
    norm = _norm_of(means, is_excess)
    image = axes.pcolormesh([*x, len(x)], edges, means, cmap="cividis", norm=norm, edgecolor="white")
    write = in_short if is_excess else in_percent
    for (row, column), mean in np.ndenumerate(means):
        red, green, blue, _ = image.cmap(norm(mean))
        is_dark = not np.isnan(mean) and 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
        text = "–" if np.isnan(mean) else write(float(f"{mean:.2g}"))
        if is_excess and 0 < mean < LEAST_EXCESS:
            text = f"<{LEAST_EXCESS:g}"
        color = "white" if is_dark else "black"
        axes.text(column + 0.5, middles[row], text, color=color, ha="center", va="center")
    extend = "min" if np.nanmin(means) < (norm.vmin or 0) else "neither"  # an arrow: less has the same colour
    scale = figure.colorbar(image, ax=axes, pad=0.02, label=label, extend=extend, format=lambda value, _: write(value))
    scale.ax.minorticks_off()
    axes.set_xticks(x + 0.5, table.columns)
    axes.set_yticks(middles, names)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    better = "lower" if is_excess else "higher"
    words = seeds_in_words(results, "number", "which the colour repeats")
    return Sketch(figure, f"{label} of each variant in each skill{where}; {better} is better. {words}")


def _norm_of(means: NDArray[np.float64], is_excess: bool) -> Normalize:
    """The colour scale: shares from 0 to 1, excess over at most three decades."""
    if not is_excess:
        return Normalize(0, 1)
    highest = float(np.nanmax(means))
    if highest <= 0:
        return Normalize(highest - 1, highest)
    lowest = max(float(np.nanmin(means)), highest / 1000)
    return LogNorm(lowest, max(highest, 1.01 * lowest), clip=True)


def draw_skill_curves(config: SkillCurvesConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw learning curves: a panel per variant, a line per skill that all its runs measured."""
    points = pd.DataFrame(
        [
            (run.label, run.seed, row["step"], row["tokens"], skill, figures[FIELDS[config.y]])
            for run in results
            for row in run.curve
            for skill, figures in (row.get("skills") or {}).items()
        ],
        columns=["variant", "seed", "step", "x", "label", "y"],
    ).astype({"y": float})
    points = at_equal_steps(points, "variant")
    styles = {skill: line_style(i) for i, skill in enumerate(points.dropna().label.unique())}
    if not styles:
        what = f"no run has the {config.y} of skills while training"
        raise ValueError(f"{what}; only languages with a known truth have skills")
    panels = {variant: mean_lines(of_variant) for variant, of_variant in points.groupby("variant", sort=False)}
    n_columns = min(3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(config.title, 1.5 + (5.6, 3.6, 2.8)[n_columns - 1] * n_columns, 1.2 + 2.6 * n_rows)
    all_axes = list(figure.subplots(n_rows, n_columns, sharey=True, squeeze=False).flat)
    for axes, (variant, lines) in zip(all_axes, panels.items(), strict=False):
        axes.set_title(wrapped(variant, 34), loc="left")
        draw_bands(axes, lines, styles, most_markers=12)
        limits = log_limits(pd.concat([*lines.values()]).index)
        log_axis(axes, "x", limits, round_ticks(*limits, most=4))
    for axes in all_axes[len(panels) :]:
        axes.remove()

    drawn = pd.concat([line for lines in panels.values() for line in lines.values()])
    if config.y == "excess":
        log_axis(all_axes[0], "y", log_limits(drawn["mean"].clip(lower=LEAST_EXCESS)))
    else:
        all_axes[0].set_ylim(-0.02, 1.02)
        plain_axis(all_axes[0], "y", shares=True)
    figure.supxlabel("training tokens", fontsize=10)
    figure.supylabel(LABELS[config.y], fontsize=10)
    keys = [
        Line2D([], [], color=style.color, marker=style.marker, linestyle=style.linestyle, label=skill)
        for skill, style in styles.items()
    ]
    figure.legend(handles=keys, loc="outside right upper", title="skill", handlelength=3)
    words = f"{LABELS[config.y]} of each skill against training tokens, a panel per variant."
    return Sketch(figure, f"{words} {seeds_in_words(results)}")

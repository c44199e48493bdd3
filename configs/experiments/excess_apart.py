"""The excess of each run in three parts, of which each is a difference of two runs with the same seed."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun, divergence_from_truth
from pellucid.experiments.report import mean_and_range, table
from pellucid.experiments.results import RunResult
from pellucid.figures import PALETTE, new_figure

PARTS = ("architecture", "optimisation", "sampling")
DOCUMENTS = 200
SETTING = ["language", "width", "updates"]


def measure(run: TrainedRun) -> dict[str, float]:
    return {"divergence": divergence_from_truth(run, DOCUMENTS)}


def parts_of(results: Sequence[RunResult]) -> pd.DataFrame:
    """The three parts for each language, width, number of updates and seed, in % of the floor.

    architecture: with soft labels, after the most updates.   optimisation: what that is below soft labels after these.
    sampling: what sampled labels are above soft ones after equally many.
    """
    runs = pd.DataFrame(
        {
            "language": run.overrides["corpus"]["type"],
            "width": run.overrides["model.d_model"],
            "updates": run.overrides["train.steps"],
            "seed": run.seed,
            "labels": "soft" if run.overrides["objective"]["type"] == "distill" else "sampled",
            "excess": 100 * run.measured["divergence"] / (run.floor or 1),
        }
        for run in results
    )
    excess = runs.pivot(index=[*SETTING, "seed"], columns="labels", values="excess").reset_index()
    longest = excess[excess.updates == excess.updates.max()].set_index(["language", "width", "seed"]).soft
    excess["architecture"] = excess.set_index(["language", "width", "seed"]).index.map(longest)
    excess["optimisation"] = excess.soft - excess.architecture
    excess["sampling"] = excess.sampled - excess.soft
    return excess


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """A bar for each language, width and number of updates, divided as the excess is."""
    parts = parts_of(results)
    languages = list(dict.fromkeys(parts.language))
    picture = new_figure(figure.title, 2.2 + 2.8 * len(languages), 1.6 + 0.3 * len(parts.groupby(SETTING[1:])))
    panels = picture.subplots(1, len(languages), sharey=True, squeeze=False)[0]
    for axes, language in zip(panels, languages, strict=True):
        draw_bars_of(axes, parts[parts.language == language].groupby(SETTING[1:])[[*PARTS, "sampled"]].mean())
        axes.set(title=language, xlim=(0, 100), xlabel="share of the excess (%)")
    picture.legend(*panels[0].get_legend_handles_labels(), ncols=3, loc="outside upper right")
    words = "The excess with sampled labels, taken apart; beside each bar it is given in % of the floor."
    words += " A part below 0 is drawn as 0."
    return Sketch(picture, f"{words} {seeds_in_words(results, 'bar', 'whose range is in the table')}", as_table(parts))


def draw_bars_of(axes: Axes, means: pd.DataFrame) -> None:
    shares = means[[*PARTS]].clip(lower=0)
    shares = 100 * shares.div(shares.sum(axis=1), axis=0)
    widths = list(dict.fromkeys(width for width, _ in means.index))
    rows = [-i - 0.7 * widths.index(width) for i, (width, _) in enumerate(means.index)]
    left = pd.Series(0.0, means.index)
    for part, color in zip(PARTS, (PALETTE[6], PALETTE[0], PALETTE[1]), strict=True):
        axes.barh(rows, shares[part], left=left, color=color, alpha=0.75, label=part)
        left += shares[part]
    for row, excess in zip(rows, means.sampled, strict=True):
        axes.annotate(f"{excess:.2g} %", (101, row), va="center", size=8, annotation_clip=False)
    axes.set_yticks(rows, [f"{width} wide, {updates:,} updates" for width, updates in means.index])


def as_table(parts: pd.DataFrame) -> str:
    """Mean, lowest and highest of each part over the seeds."""
    rows = [
        (
            f"{language}, {width} wide, {updates:,} updates",
            *(mean_and_range(of_seeds[part], "{:.3f}".format) for part in PARTS),
        )
        for (language, width, updates), of_seeds in parts.groupby(SETTING, sort=False)
    ]
    return table(("% of the floor", *PARTS), rows)

"""An intervention on a written thought: one of its names is changed, and the model goes on with what is likeliest.

Does it end where the changed way leads, where the old one leads, or elsewhere? Questions where both ways end at the
same name are left out: they say nothing.

Shapes: B documents, T symbols and the start before them.
"""

import random
from collections.abc import Sequence
from statistics import mean

import pandas as pd
import torch

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import variants_table
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure

N_QUESTIONS = 1000
FOLLOWED = ("changed", "old", "neither")


@torch.no_grad()
def measure(run: TrainedRun) -> dict[str, float]:
    """Of each place of a change, the shares of answers that follow the changed way, the old one, and neither."""
    language, encode = run.trained.corpus().language, run.trained.tokenizer.encode
    hops, found = language.hops, {}
    for place in range(hops - 1):
        rng, texts, ends = random.Random(place), [], []
        while len(texts) < N_QUESTIONS:
            told = language.write(rng).split()[: 3 * len(language.names)]
            arrows = dict(zip(told[0::3], told[2::3], strict=True))
            way = ways_end(arrows, start := rng.choice(language.names), hops)
            changed = rng.choice([name for name in language.names if name != way[place]])
            now = ways_end(arrows, changed, hops - 1 - place)[-1]
            if now != way[-1]:
                texts.append("".join(f" {s}" for s in (*told, ":", start, hops, *way[:place], changed)))
                ends.append((encode(f" {now}")[0], encode(f" {way[-1]}")[0]))
        ids_BT = torch.tensor([[run.trained.tokenizer.end_of_text, *encode(text)] for text in texts])
        ids_BT = ids_BT.to(run.precision.device)
        for _ in range(hops - 1 - place):
            ids_BT = torch.cat([ids_BT, run.trained.model(ids_BT)[:, -1:].argmax(dim=-1)], dim=1)
        answers = ids_BT[:, -1].tolist()
        shares = [mean(a == e[i] for a, e in zip(answers, ends, strict=True)) for i in (0, 1)]
        for name, share in zip(FOLLOWED, (*shares, 1 - sum(shares)), strict=True):
            found[f"step {place + 1}.{name}"] = share
    return found


def ways_end(arrows: dict[str, str], start: str, n_steps: int) -> list[str]:
    """The names to which so many arrows lead."""
    names = [start]
    for _ in range(n_steps):
        names.append(arrows[names[-1]])
    return names[1:]


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the shares, the mean over the places of the change, by updates: a panel for each depth."""
    picture, depths = new_figure(figure.title, 9.0, 4.0), sorted({run.overrides["model.n_layers"] for run in results})
    for column, axes in enumerate(picture.subplots(1, len(depths), sharey=True)):
        runs, labels = [run for run in results if run.overrides["model.n_layers"] == depths[column]], []
        for index, what in enumerate(FOLLOWED):
            style, steps = line_style(index), sorted({run.overrides["train.steps"] for run in runs})
            shares = [
                (run.overrides["train.steps"], mean(share for key, share in run.measured.items() if key.endswith(what)))
                for run in runs
            ]
            means = [mean(share for n, share in shares if n == step) for step in steps]
            axes.plot(*zip(*shares, strict=True), ".", color=style.color, alpha=0.5)
            axes.plot(steps, means, color=style.color, linestyle=style.linestyle)
            labels.append(EndLabel(what, steps[-1], means[-1], style))
        axes.set(xscale="log", xlabel="updates", ylim=(-0.03, 1.03), title=f"{depths[column]} layers")
        axes.set_xticks(steps, [f"{n}" for n in steps])
        axes.minorticks_off()
        label_ends(axes, labels)
        if column == 0:
            axes.set_ylabel("answers")
    words = "The answers that follow the changed way, the old one and neither: means over the place of the change."
    return Sketch(picture, f"{words} {seeds_in_words(results)}")


def tables(numbers: pd.DataFrame) -> list[str]:
    columns = {
        f"{what}, step {place}": (f"step {place}.{what}", "{:.1%}".format)
        for place in (1, 2, 3)
        for what in ("changed", "old")
    }
    return [
        "## What the answer follows",
        "Of 1,000 questions of four arrows, by the step that was changed.",
        variants_table(numbers, columns),
    ]

"""How often a policy thinks before questions of one, two and three arrows, and how often it is right."""

from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from pellucid.config.experiment import OwnConfig
from pellucid.config.post_training import GRPOConfig
from pellucid.corpora.drawn import Drawn
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import mean_and_range, table
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure
from pellucid.generation.answers import write_answers
from pellucid.languages.symbols import SymbolLanguage
from pellucid.languages.thoughts import THINK
from pellucid.post_training.questions import Questions

ARROWS = (1, 2, 3)
WORTH = {2: 0.68, 3: 0.28, "all": 0.41}  # a name of a thought, before the training: as the yaml says


def measure(run: TrainedRun) -> dict[str, float]:
    """`thinks.h` and `right.h` by the number of arrows h, and `price`: of one answer to each held-out question."""
    corpus, tokenizer, objective = run.trained.corpus(), run.data.tokenizer, run.config.objective
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, SymbolLanguage)
    assert isinstance(objective, GRPOConfig)
    questions = Questions(corpus.language, run.data, objective.price)
    asked = questions.held_out
    with run.precision.for_decoding().autocast():
        written = write_answers(
            run.trained.model,
            [questions.prompt(each) for each in asked],
            [(0, i) for i in range(len(asked))],
            max_new_tokens=objective.max_new_tokens,
            stop_ids=tokenizer.control_ids,
        )
    found = {"price": questions.price}
    for arrows in ARROWS:
        of_these = [(a, w.token_ids) for a, w in zip(asked, written, strict=True) if a.text.endswith(f" {arrows}")]
        found[f"thinks.{arrows}"] = fmean(tokenizer.decode(ids).startswith(f" {THINK}") for _, ids in of_these)
        found[f"right.{arrows}"] = fmean(questions.judge(a, ids).figures[0] for a, ids in of_these)
    return found


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the share of questions with a thought against the price, a line for each number of arrows."""
    picture = new_figure(figure.title, 7.5, 4)
    axes, prices, labels = picture.add_subplot(), sorted({run.measured["price"] for run in results}), []
    for index, arrows in enumerate(ARROWS):
        style, name = line_style(index), f"{arrows} arrow{'s' * (arrows > 1)}"
        at = [[run.measured[f"thinks.{arrows}"] for run in results if run.measured["price"] == p] for p in prices]
        axes.plot(prices, [fmean(seeds) for seeds in at], color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(name, prices[-1], fmean(at[-1]), style))
        for price, seeds in zip(prices, at, strict=True):
            axes.plot([price] * len(seeds), seeds, ".", color=style.color, alpha=0.5)
        if arrows in WORTH:
            axes.axvline(WORTH[arrows], color=style.color, linestyle=":", linewidth=1)
    axes.axvline(WORTH["all"], color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="price of a name", ylabel="thinks before an answer", ylim=(-0.03, 1.03))
    label_ends(axes, labels)
    columns = [(what, n) for what in ("thinks", "right") for n in ARROWS]
    rows = [[f"{price:g}", *(shares_at(results, price, f"{what}.{n}") for what, n in columns)] for price in prices]
    words = (
        "The share of held-out questions before which a policy thinks. Dotted: the price at which thoughts cease to "
        "pay, after two arrows and after three, and in black if it takes one decision for all, as predicted before."
    )
    header = ["price", *(f"{what}, {n}" for what, n in columns)]
    return Sketch(picture, f"{words} {seeds_in_words(results, 'dot')}", table(header, rows))


def shares_at(results: Sequence[RunResult], price: float, share: str) -> str:
    """The mean of the seeds, and the lowest and highest."""
    of_seeds = pd.Series([run.measured[share] for run in results if run.measured["price"] == price])
    return mean_and_range(of_seeds, "{:.0%}".format)

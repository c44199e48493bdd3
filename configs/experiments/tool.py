"""How many new sums a model writes that are right, with its tool if it has one, and without it."""

from collections.abc import Sequence
from statistics import mean

from pellucid.config.experiment import OwnConfig
from pellucid.evaluation.choosing import Choices, answer_questions
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure

N_SUMS = 500
KINDS = {"tool": "right", "way": "right", "none": "right", "tool, taken away": "alone"}


def measure(run: TrainedRun) -> dict[str, float]:
    """The shares of sums that are right: `right`, and `alone` where the tool is taken away."""
    model, corpus, found = run.trained.model, run.trained.corpus(), {}
    tools = {"right": model.environment, **({"alone": None} if model.environment else {})}
    for name, model.environment in tools.items():
        asked = corpus.language, corpus.documents("validation"), run.precision
        answers = answer_questions(model, run.trained.tokenizer, *asked, n=N_SUMS, n_samples=1)
        found[name] = Choices(answers).one.mean
    model.environment = tools["right"]
    return found


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the share of right sums by the number of those seen: a line for each kind of thought, a dot for a seed."""
    picture = new_figure(figure.title, 7.5, 4.0)
    axes, labels, rows = picture.add_subplot(), [], []
    sizes = sorted({run.overrides["corpus.size"] for run in results})
    for index, (kind, measured) in enumerate(KINDS.items()):
        runs = [run for run in results if run.overrides["corpus.thoughts"] == kind.split(",")[0]]
        if not runs:
            continue
        style = line_style(index)
        dots = [(run.overrides["corpus.size"], run.measured[measured]) for run in runs]
        means = [mean(share for of, share in dots if of == size) for size in sizes]
        axes.plot(*zip(*dots, strict=True), ".", color=style.color, alpha=0.5)
        axes.plot(sizes, means, color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(kind, sizes[-1], means[-1], style))
        shares = [[share for of, share in dots if of == size] for size in sizes]
        rows.append([kind, *(f"{mean(each):.1%} ({min(each):.1%} to {max(each):.1%})" for each in shares)])
    axes.set(xlabel="different sums in training", ylabel="new sums that are right", xscale="log", ylim=(0, 1.03))
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    label_ends(axes, labels)
    words = f"The share of {N_SUMS} new sums that a model writes without a mistake, at temperature 1."
    heading = ["thoughts", *(f"{size:,} sums" for size in sizes)]
    return Sketch(picture, f"{words} {seeds_in_words(results)}", table(heading, rows))

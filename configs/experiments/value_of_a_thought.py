"""The accuracy after four arrows by layers and thoughts, and how far a model with the way goes on beyond four.

How many steps are asked for is a symbol, and no model can know one that it has never seen. So the models are asked for
four steps, and where they would begin the next question, the best of the names is taken instead: does it follow the
arrows for a fifth step, and so on to a ninth?

Shapes: B documents, T symbols and the start before them, V vocabulary, N names.
"""

import random
from collections.abc import Sequence
from statistics import mean

import torch

from pellucid.config.experiment import OwnConfig
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import table
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure

N_DOCUMENTS, FARTHEST = 500, 9
KINDS = ("way", "filler", "shuffled", "none")


@torch.no_grad()
def measure(run: TrainedRun) -> dict[str, dict[int, float]]:
    """The share of right names at each step from the first to the ninth, given the right ones before it."""
    language = run.trained.corpus().language
    if language.thoughts != "way":
        return {}
    rng, encode = random.Random(12), run.trained.tokenizer.encode
    n_told, texts, names = 3 * len(language.names), [], []
    for _ in range(N_DOCUMENTS):
        told = language.write(rng).split()[:n_told]
        arrows = dict(zip(told[0::3], told[2::3], strict=True))
        way = [rng.choice(language.names)]
        for _ in range(FARTHEST):
            way.append(arrows[way[-1]])
        texts.append("".join(f" {symbol}" for symbol in (*told, ":", way[0], language.hops, *way[1:])))
        names.append(way[1:])
    device = run.precision.device
    ids_BT = torch.tensor([[run.trained.tokenizer.end_of_text, *encode(text)] for text in texts], device=device)
    logits_BTV = run.trained.model(ids_BT)[:, -1 - FARTHEST : -1]
    ids_of_names = torch.tensor([encode(f" {name}") for name in language.names], device=device).flatten()
    best_BT = ids_of_names[logits_BTV[..., ids_of_names].argmax(dim=-1)]
    is_right_BT = best_BT == ids_BT[:, -FARTHEST:]
    return {"goes_on": dict(enumerate(is_right_BT.double().mean(dim=0).tolist(), start=1))}


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    return draw_layers(figure, results) if figure.what == "layers" else draw_goes_on(figure, results)


def draw_layers(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the accuracy after four arrows by number of layers: a line for each kind of thought, a dot for each seed."""
    picture = new_figure(figure.title, 7.5, 4.0)
    axes, labels = picture.add_subplot(), []
    for index, kind in enumerate(KINDS):
        style, of_kind = line_style(index), [run for run in results if run.overrides["corpus.thoughts"] == kind]
        by_layers: dict[int, list[float]] = {}
        for run in of_kind:
            accuracy = run.skills["four hops"]["accuracy"]
            by_layers.setdefault(run.overrides["model.n_layers"], []).append(accuracy)
            axes.plot(run.overrides["model.n_layers"], accuracy, ".", color=style.color, alpha=0.5)
        layers = sorted(by_layers)
        axes.plot(layers, [mean(by_layers[n]) for n in layers], color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(kind, layers[-1], mean(by_layers[layers[-1]]), style))
    axes.set(xlabel="layers", ylabel="right after four arrows", ylim=(0, 1.03))
    axes.set_xticks(layers)
    label_ends(axes, labels)
    return Sketch(picture, f"The share of right answers to questions of four arrows. {seeds_in_words(results)}")


def draw_goes_on(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw how often each further step is right, by number of layers."""
    picture = new_figure(figure.title, 7.5, 4.0)
    axes, labels, rows = picture.add_subplot(), [], []
    thinking = [run for run in results if "goes_on" in run.measured]
    for index, n in enumerate(sorted({run.overrides["model.n_layers"] for run in thinking})):
        style = line_style(index)
        of_depth = [run.measured["goes_on"] for run in thinking if run.overrides["model.n_layers"] == n]
        steps = sorted(map(int, of_depth[0]))
        shares = [mean(each[str(step)] for each in of_depth) for step in steps]
        axes.plot(steps, shares, color=style.color, linestyle=style.linestyle)
        labels.append(EndLabel(f"{n} layers", steps[-1], shares[-1], style))
        lowest = min(each[str(step)] for each in of_depth for step in steps[4:])
        rows.append([f"{n}", *(f"{share:.1%}" for share in (shares[0], shares[3], shares[5], shares[8], lowest))])
    axes.axvline(4, color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="step", ylabel="right", ylim=(0, 1.03))
    label_ends(axes, labels)
    words = "The share of right names at each step, where all before it are right. Dotted: the longest way of training."
    heading = ["layers", "step 1", "step 4", "step 6", "step 9", "lowest seed and step after 4"]
    return Sketch(picture, f"{words} {seeds_in_words(thinking)}", table(heading, rows))

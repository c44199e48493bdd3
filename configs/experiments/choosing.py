"""One answer, the best and the majority of sixteen, greedy search and beams: how often is each of them right?

An answer is one of the names, and a thought at most three of them: so p(answer) is known, as a sum over all thoughts.

Shapes: Q questions, S thoughts, K steps of a thought, N names, T tokens of a question with a thought, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

import pandas as pd
import torch
from torch import Tensor

from pellucid.config.experiment import OwnConfig
from pellucid.corpora.drawn import Drawn
from pellucid.evaluation.choosing import Choices, answer_questions
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import mean_and_range, table, variants_table
from pellucid.experiments.results import RunResult
from pellucid.figures import line_style, new_figure
from pellucid.generation.beam_search import beam_search
from pellucid.languages.hops import Hops
from pellucid.languages.symbols import symbols_of, text_of
from pellucid.model.language_model import LanguageModel

N_QUESTIONS = 400
N_SAMPLES, N_BEAMS = 16, 4
KINDS = ("all", "one hop", "two hops", "three hops", "four hops")
CURVES = {  # in the figure
    "one of n is right": ("best", 0, "-"),
    "foreseen from each p(right)": ("exact", 0, (0, (4, 3))),
    "foreseen if all were equally hard": ("equally_hard", 6, (0, (1.5, 1.2))),
    "the majority of n is right": ("majority", 1, "-"),
    "the majority of very many": ("likeliest", 1, (0, (4, 3))),
}
COLUMNS = {
    "one answer": "one",
    "majority of 16": "majority",
    "of very many": "likeliest",
    "greedy": "greedy",
    "4 beams": "beams",
    "best of 16": "best",
    "foreseen": "exact",
    "if equally hard": "equally_hard",
}


def measure(run: TrainedRun) -> dict[str, object]:
    """`KIND.WHAT` of each kind of question, and `curves`: by kind and n.

    one, best, majority: of 16 answers.   exact, equally_hard: the best of 16 as it is foreseen (see `Choices`).
    likeliest: the answer that is, summed over thoughts, what a majority of very many comes to.
    greedy, beams: the answer at the end of the text that each finds, which may have a thought.
    """
    corpus, tokenizer, model = run.trained.corpus(), run.trained.tokenizer, run.trained.model
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, Hops)
    texts = corpus.fresh(N_QUESTIONS, seed=0)
    setting = (model, tokenizer, corpus.language, texts, run.precision)
    sampled = answer_questions(*setting, n=N_QUESTIONS, n_samples=N_SAMPLES)
    names = torch.tensor([tokenizer.encode(f" {name}")[0] for name in corpus.language.names])
    known, found = [], []
    for each, (prompt, n_steps) in zip(sampled, asked(run, corpus.language, texts), strict=True):
        right = tokenizer.encode(each.right)[0]
        p_N = answers_p(model, prompt, n_steps, names.to(run.precision.device)).cpu()
        known.append(replace(each, p_right=float(p_N[names == right])))
        shares = {"likeliest": names[p_N.argmax()] == right}
        for name, n_beams in (("greedy", 1), ("beams", N_BEAMS)):
            text = beam_search(
                model,
                prompt,
                n_beams=n_beams,
                max_new_tokens=n_steps + 1,
                length_penalty=0,
                has_ended=lambda _: False,
            )[0]
            shares[name] = text.token_ids[-1] == right
        found.append({"kind": each.kind, **{name: float(share) for name, share in shares.items()}})
    return figures_of(Choices(known), pd.DataFrame(found))


def asked(run: TrainedRun, language: Hops, texts: Sequence[str]) -> list[tuple[list[int], int]]:
    """The tokens of each question that `answer_questions` asks, and the steps of its thought, in the order it has."""
    tokenizer, questions = run.trained.tokenizer, []
    for i, text in enumerate(texts):
        symbols = symbols_of(text)
        of_text = language.questions(symbols)
        question = of_text[i % len(of_text)]
        prompt = [tokenizer.end_of_text, *tokenizer.encode(text_of(symbols[: question.begin]))]
        questions.append((language.skills.index(question.kind), prompt, question.answer - question.begin))
    return [(prompt, n_steps) for _, prompt, n_steps in sorted(questions, key=lambda each: each[0])]


@torch.inference_mode()
def answers_p(model: LanguageModel, prompt: Sequence[int], n_steps: int, names_N: Tensor) -> Tensor:
    """p(answer | question) of each name: the sum over all thoughts of so many names."""
    thoughts_SK = list(product(names_N.tolist(), repeat=n_steps))
    texts_ST = torch.tensor([[*prompt, *thought] for thought in thoughts_SK], device=names_N.device)
    log_p_STV = model(texts_ST)[:, len(prompt) - 1 :].log_softmax(dim=-1)
    log_p_SK = log_p_STV[:, :-1].gather(-1, texts_ST[:, len(prompt) :, None])[..., 0]
    return (log_p_SK.sum(dim=1, keepdim=True) + log_p_STV[:, -1, names_N]).exp().sum(dim=0)


def figures_of(choices: Choices, found: pd.DataFrame) -> dict[str, object]:
    figures: dict[str, object] = {}
    curves: dict[str, object] = {}
    for kind, some in {"all": choices, **choices.kinds()}.items():
        of_kind = found[(found.kind == kind) | (kind == "all")].drop(columns="kind").mean()
        curves[kind] = curve = some.curve()
        shares = {"one": some.one.mean, **curve[N_SAMPLES], **of_kind}
        figures |= {f"{kind}.{what}": share for what, share in shares.items()}
    return {**figures, "curves": curves}


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the shares by n, with a panel for each variant: lines are means over seeds, dots are seeds."""
    picture, labels = new_figure(figure.title, 9.0, 6.4), list(dict.fromkeys(run.label for run in results))
    panels = picture.subplots(2, (len(labels) + 1) // 2, sharex=True, sharey=True, squeeze=False)
    for axes, label in zip(panels.flat, labels, strict=False):
        runs = [run for run in results if run.label == label]
        sizes = sorted(map(int, runs[0].measured["curves"]["all"]))
        for name, (what, color, dashes) in CURVES.items():
            style = {"color": line_style(color).color, "linestyle": dashes}
            if what == "likeliest":
                axes.axhline(fmean(run.measured["all.likeliest"] for run in runs), label=name, **style)
                continue
            shares = [[run.measured["curves"]["all"][str(n)][what] for n in sizes] for run in runs]
            axes.plot(sizes, [fmean(of_n) for of_n in zip(*shares, strict=True)], label=name, **style)
            if dashes == "-":
                for of_seed in shares:
                    axes.plot(sizes, of_seed, ".", color=style["color"], alpha=0.5)
        axes.set(xscale="log", ylim=(0, 1.03), title=label)
        axes.set_xticks(sizes, [f"{n}" for n in sizes])
        axes.minorticks_off()
    for axes in panels[-1]:
        axes.set_xlabel("answers to each question")
    for axes in panels[:, 0]:
        axes.set_ylabel("questions")
    picture.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    words = "The share of questions to which one of n answers is right, and to which the commonest is."
    return Sketch(picture, f"{words} {seeds_in_words(results, spread='and a dot is a seed')}", as_table(results))


def as_table(results: Sequence[RunResult]) -> str:
    """The curves of all questions: mean, lowest and highest over the seeds."""
    shares = {name: what for name, (what, *_) in CURVES.items() if what != "likeliest"}
    curves = [
        {"label": run.label, "n": int(n), **at_n}
        for run in results
        for n, at_n in run.measured["curves"]["all"].items()
    ]
    rows = [
        [f"{label}, n = {n}", *(mean_and_range(seeds[what], "{:.1%}".format) for what in shares.values())]
        for (label, n), seeds in pd.DataFrame(curves).groupby(["label", "n"], sort=False)
    ]
    return table(["", *shares], rows)


def tables(numbers: pd.DataFrame) -> list[str]:
    found = ["## One answer and many", f"Of {N_QUESTIONS} new questions, {N_SAMPLES} answers to each at temperature 1."]
    for kind in KINDS:
        columns = {name: (f"{kind}.{what}", "{:.1%}".format) for name, what in COLUMNS.items()}
        found += [f"Questions of {kind}:" if kind != "all" else "All questions:", variants_table(numbers, columns)]
    return found

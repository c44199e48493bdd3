"""KL(truth || model) of the next token where a true text has led, and where the model's own text has.

A text of its own that the language cannot contain ends at its first fault: behind it there is no truth. So there are
fewer late places than in true texts. To compare like with like, true texts are counted at the places of the others.

Shapes: B texts, T places, K possible tokens, N places of all texts, V vocabulary.
"""

from collections.abc import Sequence
from statistics import fmean

import pandas as pd
import torch
from torch import Tensor

from pellucid.config.experiment import OwnConfig
from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import IGNORE_INDEX
from pellucid.experiments.figures.means import Sketch, seeds_in_words
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import variants_table
from pellucid.experiments.results import RunResult
from pellucid.figures import EndLabel, label_ends, line_style, new_figure
from pellucid.generation.answers import write_answers
from pellucid.languages.symbols import SymbolLanguage
from pellucid.objectives.distillation import SoftBatch, divergence
from pellucid.objectives.policy import log_distributions
from pellucid.post_training.distillation import soft_batch

N_TEXTS, ROWS = 1024, 128  # of each kind, and at a time
COLUMNS = {
    "true texts": ("true", "{:.4f}"),
    "the same, at the places of its own": ("same places", "{:.4f}"),
    "its own texts": ("own", "{:.4f}"),
    "difference": ("difference", "{:+.4f}"),
    "of the divergence": ("share", "{:+.1%}"),
    "own texts without a fault": ("faultless", "{:.1%}"),
}


def measure(run: TrainedRun) -> dict[str, float]:
    """Nats per token. true: on new texts of the language.   own: on texts by the model, up to their first faults.

    same places: on new texts, each place weighed as often as texts by the model reach it.
    difference: own - same places; share: of same places.
    faultless: the share of texts by the model that the language may contain.
    """
    corpus, tokenizer = run.trained.corpus(), run.trained.tokenizer
    assert isinstance(corpus, Drawn)
    assert isinstance(corpus.language, SymbolLanguage)
    true = [[*tokenizer.encode(text), tokenizer.end_of_text] for text in corpus.fresh(N_TEXTS, seed=0)]
    nats: dict[str, Tensor] = {}
    reached: dict[str, Tensor] = {}
    n_faultless = 0
    for name, texts in (("true", true), ("own", texts_by_the_model(run))):
        parts = [soft_batch(corpus.language, tokenizer, texts[i : i + ROWS]) for i in range(0, N_TEXTS, ROWS)]
        n_faultless = sum(without_fault(part) for part in parts)  # of the last, its own
        found = [divergences(run, part) for part in parts]
        places_N, nats_N = (torch.cat(each) for each in zip(*found, strict=True))
        reached[name] = places_N.bincount(minlength=run.trained.model.context_length)
        nats[name] = places_N.bincount(nats_N, minlength=run.trained.model.context_length)
    mean_T = nats["true"] / reached["true"].clamp(min=1)
    same = float(mean_T @ reached["own"].double() / reached["own"].sum())
    true_mean, own = (float(nats[name].sum() / reached[name].sum()) for name in ("true", "own"))
    return {
        "true": true_mean,
        "same places": same,
        "own": own,
        "difference": own - same,
        "share": (own - same) / same,
        "faultless": n_faultless / N_TEXTS,
    }


def texts_by_the_model(run: TrainedRun) -> list[list[int]]:
    """Documents at temperature 1. What stands where the context is full is an end: judged is what should be there."""
    end, length = run.trained.tokenizer.end_of_text, run.trained.model.context_length - 1
    texts = []
    for first in range(0, N_TEXTS, ROWS):
        with run.precision.for_decoding().autocast():
            written = write_answers(
                run.trained.model,
                [[end]] * ROWS,
                [(0, first + i) for i in range(ROWS)],
                max_new_tokens=length,
                stop_ids=run.trained.tokenizer.control_ids,
            )
        texts += [[*each.token_ids, *[end] * (each.finish_reason == "length")] for each in written]
    return texts


def without_fault(batch: SoftBatch) -> int:
    """How many of these texts have no token that is impossible where it stands."""
    is_possible_BTK = (batch.ids_BTK == batch.targets_BT[..., None]) & (batch.p_BTK > 0)
    return int((is_possible_BTK.any(dim=-1) | (batch.targets_BT == IGNORE_INDEX)).all(dim=1).sum())


@torch.inference_mode()
def divergences(run: TrainedRun, batch: SoftBatch) -> tuple[Tensor, Tensor]:
    """The place of each target in its text, and KL(truth || model) there: (N,) each."""
    batch = batch.to(run.precision.device)
    is_target_BT = batch.targets_BT != IGNORE_INDEX
    log_q_NV = log_distributions(run.precision.computing(run.trained.model)(batch.inputs_BT)[is_target_BT])
    nats_N = divergence(batch.p_BTK[is_target_BT], log_q_NV.gather(-1, batch.ids_BTK[is_target_BT]))
    return is_target_BT.nonzero()[:, 1].cpu(), nats_N.double().cpu()


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw both divergences by updates, with a panel for each language: lines are means over seeds, dots are seeds."""
    languages = list(dict.fromkeys(run.overrides["corpus"]["type"] for run in results))
    picture = new_figure(figure.title, 4.5 * len(languages), 4.0)
    for column, (axes, language) in enumerate(
        zip(picture.subplots(1, len(languages), squeeze=False)[0], languages, strict=True)
    ):
        runs, labels = [run for run in results if run.overrides["corpus"]["type"] == language], []
        steps = sorted({run.overrides["train.steps"] for run in runs})
        for index, (name, what) in enumerate({"true texts": "same places", "its own texts": "own"}.items()):
            style = line_style(index)
            found = [(run.overrides["train.steps"], run.measured[what]) for run in runs]
            means = [fmean(nats for n, nats in found if n == step) for step in steps]
            axes.plot(*zip(*found, strict=True), ".", color=style.color, alpha=0.5)
            axes.plot(steps, means, color=style.color, linestyle=style.linestyle)
            labels.append(EndLabel(name, steps[-1], means[-1], style))
        axes.set(xscale="log", yscale="log", xlabel="updates", title=language)
        axes.set_xticks(steps, [f"{n}" for n in steps])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        label_ends(axes, labels)
        if column == 0:
            axes.set_ylabel("KL(truth || model), nats per token")
    words = "The mean over places that texts by the model reach, in such texts and in true ones."
    return Sketch(picture, f"{words} {seeds_in_words(results, spread='and a dot is a seed')}")


def tables(numbers: pd.DataFrame) -> list[str]:
    columns = {name: (what, form.format) for name, (what, form) in COLUMNS.items()}
    words = f"KL(truth || model) in nats per token, on {N_TEXTS:,} texts of each kind."
    return ["## On true texts and on its own", words, variants_table(numbers, columns)]

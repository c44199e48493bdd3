"""Which head of the demo does what.

Remakes: heads
Takes: 1 minute
Needs: checkpoints/fables

The same figures as `pellucid heads checkpoints/fables`, and what each head costs if it gives its mean over these fables
instead of zeros.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from results import Entry

from pellucid.evaluation.estimate import Estimate
from pellucid.inspection.attribution import Attribution, attribute
from pellucid.inspection.build import known_corpus_of
from pellucid.inspection.interventions import Place, replaced
from pellucid.inspection.knock_out import N_DOCUMENTS, HeldOut, costs, held_out_documents, loss_by_skill
from pellucid.inspection.trace import require_decoder, trace
from pellucid.model.decoder import Decoder
from pellucid.trained import load_trained_run


def measure(run: Path, *, fables: int = N_DOCUMENTS) -> Iterator[Entry]:
    trained, _ = load_trained_run(run)
    model, corpus = require_decoder(trained.model, "heads"), known_corpus_of(trained, "heads")
    held_out = held_out_documents(corpus, trained.tokenizer, model.context_length, fables)
    attribution = attribute(model, trained.tokenizer, corpus.language, held_out)
    figures = {
        "looks": looks(attribution),
        "costs": all_costs(attribution),
        "costs of the mean": costs_of_mean(model, held_out, corpus.language.skills),
        "done": done(attribution),
    }
    yield Entry("heads", figures, ["fables"], numbers="fp32")


def shown(estimate: Estimate, times: float = 1.0, digits: int = 2) -> str:
    return f"{times * estimate.mean:.{digits}f} ± {times * estimate.half_width:.{digits}f}"


def looks(attribution: Attribution) -> dict[str, dict[str, str]]:
    """In percent; the first row is attention that is spread evenly."""
    rows = {"spread evenly": {skill: f"{100 * share:.1f}" for skill, share in attribution.evenly.items()}}
    for head in attribution.heads:
        rows[f"{head.layer}.{head.head}"] = {skill: shown(share, 100, 1) for skill, share in head.looks.items()}
    return rows


def all_costs(attribution: Attribution) -> dict[str, dict[str, str]]:
    """In nats per fable."""
    costs_of = {
        f"{head.layer}.{head.head}": {**head.costs.by_skill, "all": head.costs.all} for head in attribution.heads
    }
    return {row: {skill: shown(cost) for skill, cost in cells.items()} for row, cells in costs_of.items()}


def done(attribution: Attribution) -> dict[str, dict[str, float]]:
    """For each skill that one head does: which head, and the numbers that the text quotes."""
    rows = {}
    for skill in attribution.evenly:
        if head := attribution.done_by(skill):
            cost = head.costs.by_skill[skill].mean
            others = max(each.costs.by_skill[skill].mean for each in attribution.heads if each is not head)
            rows[skill] = {
                "layer": head.layer,
                "head": head.head,
                "looks": 100 * head.looks[skill].mean,
                "evenly": 100 * attribution.evenly[skill],
                "costs": cost,
                "share": 100 * cost / head.costs.all.mean,
                "next head costs": others,
            }
    return rows


def costs_of_mean(model: Decoder, fables: list[HeldOut], skills: Sequence[str]) -> dict[str, dict[str, str]]:
    """Each head replaced by its mean output over all tokens of these fables (mean ablation, Wang et al. 2022)."""
    sums_LHK, n_tokens = torch.zeros(()), 0
    for fable in fables:
        sums_LHK = sums_LHK + trace(model, fable.ids).heads.double().sum(dim=2)
        n_tokens += len(fable.ids)
    intact_FS = loss_by_skill(model, fables)
    rows = {}
    for layer in range(sums_LHK.size(0)):
        for head in range(sums_LHK.size(1)):
            place: Place = ("head", layer, head)
            with replaced(model, {place: sums_LHK[layer, head] / n_tokens}):
                ablated = costs(intact_FS, loss_by_skill(model, fables), skills, [place])
            rows[f"{layer}.{head}"] = {skill: shown(cost) for skill, cost in ablated.by_skill.items()}
    return rows

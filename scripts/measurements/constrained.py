"""How far what a mask writes is from the model's own distribution among the texts of a form (equation 56).

Remakes: constrained
Takes: a minute
Needs: checkpoints/weather

Each form is a set of forecasts, and small enough to be listed. So the probability of each text is computed in three
ways: by the model, by the model behind a mask, and by the model given the form. Drafts are drawn as the server does it.
Texts count as the tokenizer spells them; other spellings, which a mask allows, too, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from results import ROOT, Entry

from pellucid.generation.constraints import Exactly
from pellucid.generation.engine import Engine
from pellucid.generation.grammar_form import GrammarForm
from pellucid.generation.slots import make_slots
from pellucid.generation.text import never_written
from pellucid.generation.writing import Writing
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.languages.grammar.portrait import all_texts
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer
from pellucid.trained import load_trained_run

Floats = NDArray[np.float64]
RULES = (ROOT / "configs/languages/weather.rules").read_text("utf-8")
COMMON = "    4 an umbrella\n    2 a long coat\n"
FORMS = {  # the rules of each, from those that the model has learned
    "all forecasts": RULES,
    "of all things, only a sledge": RULES.replace(COMMON, "").replace("    1 nothing but a hat\n", ""),
    "of all days, only next week": RULES.replace(
        "    2 on Monday\n    2 on Friday\n    1 on Sunday\n    1 tomorrow\n", ""
    ),
}
TEXTS_AT_ONCE = 512


def measure(run: Path, *, drafted: int = 200) -> Iterator[Entry]:
    """drafted: how many texts to draw of each form."""
    trained, _ = load_trained_run(run)
    model, tokenizer = trained.model.cpu().float().eval(), trained.tokenizer
    rows = {name: row_of(model, tokenizer, OwnGrammar(rules, name), drafted) for name, rules in FORMS.items()}
    yield Entry("constrained", rows, ["languages/weather"], numbers="fp32")


def row_of(model: LanguageModel, tokenizer: Tokenizer, grammar: OwnGrammar, drafted: int) -> dict[str, float]:
    form, texts = GrammarForm(grammar.grammar, tokenizer), list(all_texts(grammar))
    ids = [[tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text] for text in texts]
    p, kept = probabilities(model, form, ids)
    masked, given = p / kept, p / p.sum()
    n_drafts = [drafts_for_one(model, tokenizer, form, seed, max(map(len, ids))) for seed in range(drafted)]
    return {
        "texts": len(texts),
        "of the model's texts (%)": 100 * p.sum(),
        "distance of the mask (%)": 100 * distance(masked / masked.sum(), given),
        "drafts per text": float(np.mean(n_drafts)),
    }


def distance(one: Floats, other: Floats) -> float:
    """The total variation distance: the share of texts that have to be exchanged."""
    return float(np.abs(one - other).sum() / 2)


@torch.inference_mode()
def probabilities(model: LanguageModel, form: GrammarForm, ids: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
    """p of each text, and the product of the masses that a mask leaves."""
    p, kept = np.zeros(len(ids)), np.zeros(len(ids))
    masks: dict[tuple[int, ...], torch.Tensor] = {}
    for start in range(0, len(ids), TEXTS_AT_ONCE):
        some = ids[start : start + TEXTS_AT_ONCE]
        length = max(map(len, some))
        tokens_BT = torch.tensor([[*each, *[0] * (length - len(each))] for each in some])
        p_BTV = model(tokens_BT[:, :-1]).double().softmax(dim=-1)
        for i, each in enumerate(some):
            beginning, ln_p, ln_kept = form.begin(), 0.0, 0.0
            for t, id_ in enumerate(each[1:]):
                before = tuple(each[1 : t + 1])
                if before not in masks:
                    masks[before] = beginning.allowed()
                ln_p += math.log(p_BTV[i, t, id_])
                ln_kept += math.log(p_BTV[i, t, masks[before]].sum())
                if t < len(each) - 2:
                    beginning.add(id_)
            p[start + i], kept[start + i] = math.exp(ln_p), math.exp(ln_kept)
    return p, kept


def drafts_for_one(model: LanguageModel, tokenizer: Tokenizer, form: GrammarForm, seed: int, most: int) -> int:
    constraint = Exactly(form, 1.0, (seed, 1))
    engine = Engine(model, make_slots(model, 1), stop_ids=tokenizer.stop_ids, forbidden_ids=never_written(tokenizer))
    engine.add(writing := Writing([tokenizer.end_of_text], most, seed=(seed,), constraint=constraint))
    while not engine.is_idle:
        engine.step()
    if writing.error:
        raise writing.error
    return constraint.n_drafts

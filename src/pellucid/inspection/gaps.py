"""Traces a text in a model that fills gaps, and explains it: each token is hidden alone, and predicted from all others.

Shapes: T places, V vocabulary, O outcomes as in `explain.py`; those of a trace.
"""

from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from pellucid.config.gaps import MASK
from pellucid.data.both_sides import distributions_from_both_sides
from pellucid.evaluation.skills import skill_table
from pellucid.inspection import explain as left
from pellucid.inspection.explanation import NO_TOKEN, Explanation
from pellucid.inspection.trace import Trace, require_decoder, trace, trace_text
from pellucid.languages.language import Language
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.pieces import token_text

EACH_HIDDEN = "each token is hidden alone, and is to be found from all others"
NO_DOCUMENT = "what fits a gap is known exactly only in a whole document. This text is none, so only the model is shown"
IS_CUT = "the text is longer than the context of the model: this is about the first words of it, which fit"


def explain_gaps(
    model: LanguageModel, tokenizer: Tokenizer, whole: str, language: Language | None, n_candidates: int
) -> Explanation:
    """Explain each token of a text given all others, as `explain` does it given those before."""
    text = left.beginning_that_fits(tokenizer, whole, model.context_length - 1)
    traced = trace_gaps(model, tokenizer, text)
    ids, texts_O = traced.ids[1:], [*(token_text(tokenizer, id_) for id_ in range(tokenizer.vocab_size)), NO_TOKEN]
    p_T = list(distributions_from_both_sides(language, tokenizer, text)) if language else []
    truth = left.document_truth(language, tokenizer, text, ids, p_T) if language and p_T else None
    log_q_TO = left.log_q_of(traced.unembed(traced.residuals[-1, 1:]))
    rows = [
        left.token_row(id_, log_q_O, p, texts_O, skills=skills, n_candidates=n_candidates)
        for id_, log_q_O, p, skills in zip_longest(ids, log_q_TO, p_T, left.skills_of_tokens(truth) if truth else [])
    ]
    nats_T, hits_T = np.array([row.model_nats for row in rows]), np.array([row.is_hit for row in rows])
    skills = skill_table(truth, np.arange(len(rows)), nats_T, hits_T, n_documents=1) if truth else None
    unknown = [] if truth else [NO_DOCUMENT if language else left.NO_TRUTH]
    notes = [EACH_HIDDEN, *unknown, *([] if text == whole else [IS_CUT])]
    return Explanation(text, rows, None, "token", truth is not None, skills, notes)


def trace_gaps(model: LanguageModel, tokenizer: Tokenizer, text: str) -> Trace:
    """A trace in which each place is as it is while its token is hidden; the first, which begins a text, never is.

    So row t of the attention is where a gap in place t looks. There are no steps inside: they are of one text.
    """
    decoder, whole = require_decoder(model, "trace"), trace_text(model, tokenizer, text)
    ids, mask_id = whole.ids, tokenizer.control_id(MASK)
    traces = (trace(decoder, [*ids[:t], mask_id, *ids[t + 1 :]]) if t else whole for t in range(len(ids)))
    axes = {"attention": 2, "heads": 2, "outputs": 1, "residuals": 1}
    columns = [[getattr(each, name).select(axes[name], t).clone() for name in axes] for t, each in enumerate(traces)]
    parts: dict[str, Any] = {
        name: torch.stack([column[i] for column in columns], axes[name]) for i, name in enumerate(axes)
    }
    return replace(whole, **parts, steps_inside=lambda _: [])

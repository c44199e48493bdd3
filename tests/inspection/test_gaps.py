"""Gaps explained: each token hidden alone, the model's guess beside p(token | all others) by enumeration."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from model.model_axes import build_away_from_zero, tiny_config
from pellucid.corpora.drawn import Drawn
from pellucid.inspection.build import explain_run
from pellucid.inspection.gaps import explain_gaps, trace_gaps
from pellucid.inspection.trace import trace
from pellucid.tokenizer.train import train_byte_pairs
from small_languages import SMALL, all_documents

MASK = "<|mask|>"


def with_tokenizer(name):
    documents = all_documents(SMALL[name])
    return documents, train_byte_pairs(documents, vocab_size=300, special_tokens=["<|endoftext|>", MASK])


def hides(ids, t):
    return [*ids[:t], None, *ids[t + 1 :]]


@pytest.mark.parametrize("name", ["lookup", "golden mean", "trees"])
def test_each_token_is_explained_beside_the_truth_given_all_others(name):
    documents, tokenizer = with_tokenizer(name)
    spelled = {tuple(tokenizer.encode(text)): p for text, p in documents.items()}
    model = build_away_from_zero(tiny_config(attention_mask="none", context_length=12), tokenizer.vocab_size)
    text, mask_id = sorted(documents)[len(documents) // 3], tokenizer.control_id(MASK)
    explanation = explain_gaps(model, tokenizer, text, SMALL[name], 2)
    ids = tokenizer.encode(text)
    assert [row.id for row in explanation.rows] == ids
    for t, row in enumerate(explanation.rows):
        with torch.no_grad():
            logits_V = model(torch.tensor([[tokenizer.end_of_text, *ids[:t], mask_id, *ids[t + 1 :]]]))[0, t + 1]
        assert row.model_nats == pytest.approx(-logits_V.log_softmax(dim=-1)[row.id].item(), rel=1e-5)
        others = [other for other in spelled if len(other) == len(ids) and hides(other, t) == hides(ids, t)]
        fits = {other[t]: spelled[other] for other in others}
        assert row.truth == pytest.approx(fits[row.id] / sum(fits.values()))
        assert 2 <= len(row.forecast.candidates) <= 4, "as many of the truth, and of the model"
    assert explanation.floor_nats < -SMALL[name].log_probability(text), "more is known than from the left"
    scores = explanation.skills.scores.values()
    assert sum(score.loss_nats for score in scores) == pytest.approx(explanation.loss_nats)
    assert "the next token" not in explanation.table()
    assert json.loads(json.dumps(explanation.to_json()))["next"] is None


def test_of_a_text_that_is_no_document_only_the_model_is_shown():
    documents, tokenizer = with_tokenizer("lookup")
    text = next(iter(documents))
    model = build_away_from_zero(tiny_config(attention_mask="none", context_length=10), tokenizer.vocab_size)
    for part in (text[:-2], text + text, ""):
        explanation = explain_gaps(model, tokenizer, part, SMALL["lookup"], 3)
        is_cut = part == text + text
        assert (explanation.floor_nats is None) == (not is_cut), "what fits is a document again"
        assert ("only in a whole document" in explanation.notes[1]) == (not is_cut)
        assert ("longer than the context" in explanation.notes[-1]) == is_cut


def test_a_trace_of_gaps_is_at_each_place_that_of_the_text_without_its_token():
    documents, tokenizer = with_tokenizer("golden mean")
    model = build_away_from_zero(tiny_config(attention_mask="none"), tokenizer.vocab_size)
    traced = trace_gaps(model, tokenizer, next(iter(documents)))
    ids, mask_id = traced.ids, tokenizer.control_id(MASK)
    for t in range(len(ids)):
        hidden = trace(model, [*ids[:t], mask_id, *ids[t + 1 :]] if t else ids)
        for name, axis in {"attention": 2, "heads": 2, "outputs": 1, "residuals": 1, "logits": 1}.items():
            torch.testing.assert_close(getattr(traced, name).select(axis, t), getattr(hidden, name).select(axis, t))
    assert traced.attention.gt(0).all(), "a whole square"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_run_that_fills_gaps_is_explained_with_its_maps(monkeypatch, is_known):
    _, tokenizer = with_tokenizer("lookup")
    monkeypatch.setattr(SMALL["lookup"], "identity", {"type": "lookup"}, raising=False)
    known = Drawn(SMALL["lookup"], size=20, seed=0, validation_fraction=0.05)
    corpus = known if is_known else SimpleNamespace(pieces=known.pieces)
    config = {"objective": SimpleNamespace(type="masked"), "corpus": SimpleNamespace(type="lookup"), "name": "gaps"}
    model = build_away_from_zero(tiny_config(attention_mask="none", context_length=12), tokenizer.vocab_size)
    trained = SimpleNamespace(
        config=SimpleNamespace(**config), model=model, tokenizer=tokenizer, corpus=lambda: corpus, step=7
    )
    explanation = explain_run(trained, None, number=1, n_candidates=3, attention="all")
    assert explanation.has_truth == is_known
    n = len(explanation.rows) + 1
    for head in explanation.to_json()["attention"]["heads"]:
        assert [len(row) for row in head["weights"]] == [n] * n
        assert [math.fsum(row) for row in head["weights"]] == pytest.approx([1] * n, abs=1e-4)
    assert "gaps, step 7, reads held-out document 1" in explanation.table()

"""Which head does what: heads whose attention is known are measured as what they are."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from inspection.conftest import CONTEXT
from model.model_axes import build_away_from_zero, tiny_config
from pellucid.inspection import attribution
from pellucid.inspection.attribution import (
    SKILLS_DECIDED,
    Attribution,
    HeadTable,
    HeadWork,
    attribute,
    deciding_tokens,
    what_decides,
)
from pellucid.inspection.estimate import Estimate, ratio
from pellucid.inspection.head_scores import SCORES, HeadScores
from pellucid.inspection.knock_out import Costs, held_out_fables, loss_by_skill
from pellucid.inspection.trace import trace
from pellucid.model.build import build_model
from pellucid.tokenizer.train import train_characters

END = "<|endoftext|>"


def small_model(tokenizer, **choices):
    config = tiny_config(context_length=CONTEXT, d_model=16, **choices)
    return build_away_from_zero(config, tokenizer.vocab_size).eval()


def test_deciding_tokens_hold_the_deciding_words_and_come_before_what_they_decide(corpus, tokenizer, fables):
    fable = fables[0]
    decides_KTS = deciding_tokens(corpus, tokenizer, fable)
    texts = [tokenizer.decode([id_]) for id_ in fable.ids]
    n_found = 0
    for piece in corpus.decided_pieces(fable.text):
        words = [fable.text[start:end] for start, end in piece.by]
        start = len(fable.text[: piece.start].rstrip())
        t = next(t for t in range(len(texts)) if len("".join(texts[1 : t + 1])) > start) - 1  # the query before it
        for k in range(len(SKILLS_DECIDED)):
            if decides_KTS[k, t].any():
                keys = np.flatnonzero(decides_KTS[k, t])
                assert keys.max() <= t
                read = "".join(texts[s] for s in keys)
                assert all(word in read for word in words), (words, read)
                n_found += 1
    assert n_found
    assert not decides_KTS[:, :, 0].any()  # no word stands at the end_of_text before the fable
    assert not np.triu(decides_KTS, k=1).any()


def test_of_a_long_fable_only_what_is_read_counts(corpus, tokenizer, fables):
    whole = deciding_tokens(corpus, tokenizer, fables[0])
    [cut] = held_out_fables(corpus, tokenizer, context_length=90, n=1)
    np.testing.assert_array_equal(deciding_tokens(corpus, tokenizer, cut), whole[:, :90, :90])


def test_what_decides_is_known_of_the_beginning_of_a_fable_too(corpus, tokenizer, fables):
    fable = fables[0]
    rows = deciding_tokens(corpus, tokenizer, fable).any(axis=0)
    assert what_decides(corpus, tokenizer, fable.text) == [np.flatnonzero(row).tolist() for row in rows]
    t = int(np.flatnonzero(rows.any(axis=1))[0])
    beginning = tokenizer.decode(fable.ids[1 : t + 2])  # with the token that is decided
    assert what_decides(corpus, tokenizer, beginning)[t]
    assert len(what_decides(corpus, tokenizer, beginning)) == t + 2


def test_heads_that_spread_their_attention_evenly_look_no_more_at_what_decides(corpus, tokenizer, fables):
    model = small_model(tokenizer, position={"type": "none"})
    with torch.no_grad():
        for block in model.blocks:
            block.attention.sublayer.W_Q.weight.zero_()
            if block.attention.sublayer.W_Q.bias is not None:
                block.attention.sublayer.W_Q.bias.zero_()
    found = attribute(model, tokenizer, corpus, fables)
    assert {"recall", "fact"} <= set(found.evenly)
    for head in found.heads:
        for skill, share in found.evenly.items():
            assert head.looks[skill].mean == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("units", ["byte pairs", "characters"])
def test_a_head_that_looks_only_at_what_decides_has_all_its_attention_there(corpus, units, tokenizer, monkeypatch):
    if units == "characters":
        tokenizer = train_characters(corpus.documents("validation"), special_tokens=[END])
    fables = held_out_fables(corpus, tokenizer, 700, n=2)
    model = build_model(tiny_config(context_length=700), tokenizer.vocab_size)
    by_ids = {tuple(fable.ids): deciding_tokens(corpus, tokenizer, fable).any(axis=0) for fable in fables}

    def knowing(model, ids):
        looks_TS = torch.from_numpy(by_ids[tuple(ids)]).float()
        looks_TS[looks_TS.sum(dim=1) == 0, 0] = 1
        traced = trace(model, ids)
        traced.attention[1, 0] = looks_TS / looks_TS.sum(dim=1, keepdim=True)
        return traced

    monkeypatch.setattr(attribution, "trace", knowing)
    knows = attribute(model, tokenizer, corpus, fables).heads[2]
    assert (knows.layer, knows.head) == (1, 0)
    # A token may take two skills, which other words decide; then it looks at the words of both.
    assert knows.looks["fact"] == Estimate(pytest.approx(1), pytest.approx(0, abs=1e-6))
    assert all(share.mean > 0.5 for share in knows.looks.values())


def test_what_a_head_costs_is_what_the_knock_out_says(corpus, tokenizer, fables):
    model = small_model(tokenizer)
    found = attribute(model, tokenizer, corpus, fables)
    assert [(head.layer, head.head) for head in found.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    difference_FS = loss_by_skill(model, fables, [("head", 1, 0)]) - loss_by_skill(model, fables)
    recall = corpus.skills.index("recall")
    assert found.heads[2].costs.by_skill["recall"].mean == pytest.approx(difference_FS[:, recall].mean())


def test_a_ratio_counts_fables_not_tokens():
    assert ratio(np.array([1.0, 2.0, 4.0]), np.array([2.0, 4.0, 8.0])) == Estimate(0.5, 0.0)
    estimate = ratio(np.array([1.0, 0.0]), np.array([1.0, 1.0]))
    assert (estimate.mean, estimate.half_width) == (0.5, pytest.approx(1.96 * math.sqrt(0.5 * 2 / 4)))
    tokens_double = ratio(np.array([10.0, 0.0]), np.array([10.0, 10.0]))
    assert tokens_double.half_width == pytest.approx(estimate.half_width)


def work(layer, head, looks, cost, half_width=0.1):
    costs = Costs((("head", layer, head),), {"recall": Estimate(cost, half_width)}, Estimate(2 * cost, half_width))
    return HeadWork(layer, head, {"recall": Estimate(looks, 0.02)}, costs)


def test_a_skill_is_done_by_the_head_that_looks_there_and_is_missed_most():
    does, looks_only, other = work(1, 0, 0.9, 4.0), work(1, 1, 0.95, 0.2), work(0, 0, 0.01, 3.0)
    found = Attribution(9, {"recall": 0.03}, [other, looks_only, does])
    assert found.done_by("recall") is does
    assert replace(found, heads=[looks_only, other]).done_by("recall") is None  # missed most, but it looks elsewhere
    assert replace(found, heads=[work(1, 0, 0.9, 0.1, half_width=0.2)]).done_by("recall") is None  # perhaps no cost

    lines = found.table().splitlines()
    assert lines[3].split() == ["evenly", "3.0%"]
    assert lines[6].split() == ["1.0", "90.0", "±2.0", "+4.00", "±0.10", "+8.00", "±0.10"]
    sentence = "recall: head 1.0; without it, recall loses 4.00 nats per fable and all skills together 8.00"
    assert lines[-1] == sentence
    assert replace(found, heads=[other]).table().endswith("recall: no single head does it")


def test_the_table_of_heads_goes_into_json_with_and_without_an_attribution():
    scores = [HeadScores(0, 0, dict.fromkeys(SCORES, 0.01))]
    found = Attribution(9, {"recall": 0.03}, [work(0, 0, 0.9, 4.0)])
    figures = json.loads(json.dumps(HeadTable(scores, found).to_json()))
    assert figures["attribution"]["done_by"] == {"recall": [0, 0]}
    assert figures["attribution"]["heads"][0]["looks"]["recall"] == {"mean": 0.9, "half_width": 0.02}
    assert figures["attribution"]["heads"][0]["costs"]["all"]["mean"] == 8.0
    assert HeadTable(scores, None).to_json() == {"scores": [scores[0].to_json()], "attribution": None}
    assert HeadTable(scores, None).table() in HeadTable(scores, found).table()

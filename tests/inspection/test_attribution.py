"""Which head does what: heads whose attention is known are measured as what they are."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from inspection.conftest import CONTEXT
from listed_corpus import ListedCorpus
from model.model_axes import build_away_from_zero, tiny_config
from pellucid.config.languages import HiddenConfig, LookupConfig
from pellucid.corpora.build import build_corpus
from pellucid.evaluation.estimate import Estimate, ratio
from pellucid.inspection import attribution
from pellucid.inspection.attribution import (
    Attribution,
    HeadTable,
    HeadWork,
    attribute,
    deciding_tokens,
    skills_decided,
    what_decides,
)
from pellucid.inspection.head_scores import SCORES, HeadScores
from pellucid.inspection.knock_out import Costs, held_out_documents, loss_by_skill
from pellucid.inspection.trace import trace
from pellucid.model.build import build_model
from pellucid.tokenizer.train import train_byte_pairs, train_characters

END = "<|endoftext|>"


def small_model(tokenizer, **choices):
    config = tiny_config(context_length=CONTEXT, d_model=16, **choices)
    return build_away_from_zero(config, tokenizer.vocab_size).eval()


def test_deciding_tokens_hold_the_deciding_words_and_come_before_what_they_decide(language, tokenizer, fables):
    fable = fables[0]
    decides_KTS = deciding_tokens(language, tokenizer, fable)
    texts = [tokenizer.decode([id_]) for id_ in fable.ids]
    n_found = 0
    for piece in language.decided_pieces(fable.text):
        words = [fable.text[start:end] for start, end in piece.by]
        start = len(fable.text[: piece.start].rstrip())
        t = next(t for t in range(len(texts)) if len("".join(texts[1 : t + 1])) > start) - 1  # the query before it
        for k in range(len(skills_decided(language))):
            if decides_KTS[k, t].any():
                keys = np.flatnonzero(decides_KTS[k, t])
                assert keys.max() <= t
                read = "".join(texts[s] for s in keys)
                assert all(word in read for word in words), (words, read)
                n_found += 1
    assert n_found
    assert not decides_KTS[:, :, 0].any()  # no word stands at the end_of_text before the fable
    assert not np.triu(decides_KTS, k=1).any()


def test_of_a_long_fable_only_what_is_read_counts(corpus, language, tokenizer, fables):
    whole = deciding_tokens(language, tokenizer, fables[0])
    [cut] = held_out_documents(corpus, tokenizer, context_length=90, n=1)
    np.testing.assert_array_equal(deciding_tokens(language, tokenizer, cut), whole[:, :90, :90])


def test_what_decides_is_known_of_the_beginning_of_a_fable_too(language, tokenizer, fables):
    fable = fables[0]
    rows = deciding_tokens(language, tokenizer, fable).any(axis=0)
    assert what_decides(language, tokenizer, fable.text) == [np.flatnonzero(row).tolist() for row in rows]
    t = int(np.flatnonzero(rows.any(axis=1))[0])
    beginning = tokenizer.decode(fable.ids[1 : t + 2])  # with the token that is decided
    assert what_decides(language, tokenizer, beginning)[t]
    assert len(what_decides(language, tokenizer, beginning)) == t + 2


def test_heads_that_spread_their_attention_evenly_look_no_more_at_what_decides(language, tokenizer, fables):
    model = small_model(tokenizer, position={"type": "none"})
    with torch.no_grad():
        for block in model.blocks:
            block.attention.sublayer.W_Q.weight.zero_()
            if block.attention.sublayer.W_Q.bias is not None:
                block.attention.sublayer.W_Q.bias.zero_()
    found = attribute(model, tokenizer, language, fables)
    assert {"recall", "fact"} <= set(found.evenly)
    for head in found.heads:
        for skill, share in found.evenly.items():
            assert head.looks[skill].mean == pytest.approx(share, abs=1e-6)


def test_a_head_that_looks_only_at_what_decides_has_all_its_attention_there(language, tokenizer, fables, monkeypatch):
    model = build_model(tiny_config(context_length=CONTEXT), tokenizer.vocab_size)
    by_ids = {tuple(fable.ids): deciding_tokens(language, tokenizer, fable).any(axis=0) for fable in fables}

    def knowing(model, ids):
        looks_TS = torch.from_numpy(by_ids[tuple(ids)]).float()
        looks_TS[looks_TS.sum(dim=1) == 0, 0] = 1
        traced = trace(model, ids)
        traced.attention[1, 0] = looks_TS / looks_TS.sum(dim=1, keepdim=True)
        return traced

    monkeypatch.setattr(attribution, "trace", knowing)
    knows = attribute(model, tokenizer, language, fables).heads[2]
    assert (knows.layer, knows.head) == (1, 0)
    # A token may take two skills, which other words decide; then it looks at the words of both.
    assert knows.looks["fact"] == Estimate(pytest.approx(1), pytest.approx(0, abs=1e-6))
    assert all(share.mean > 0.5 for share in knows.looks.values())


def test_what_a_head_costs_is_what_the_knock_out_says(language, tokenizer, fables):
    model = small_model(tokenizer)
    found = attribute(model, tokenizer, language, fables)
    assert [(head.layer, head.head) for head in found.heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    difference_FS = loss_by_skill(model, fables, [("head", 1, 0)]) - loss_by_skill(model, fables)
    recall = language.skills.index("recall")
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
    assert lines[2].split() == ["evenly", "3.0%"]
    assert lines[5].split() == ["1.0", "90.0", "±2.0", "+4.00", "±0.10", "+8.00", "±0.10"]
    sentence = "recall: head 1.0; without it, recall loses 4.00 nats per document and all skills together 8.00"
    assert lines[-1] == sentence
    sentence = "recall: no single head does it; 1.1 looks there most, and 0.0 is missed most"
    assert replace(found, heads=[other, looks_only]).table().endswith(sentence)


def test_the_table_of_heads_goes_into_json_with_and_without_an_attribution():
    scores = [HeadScores(0, 0, dict.fromkeys(SCORES, 0.01))]
    found = Attribution(9, {"recall": 0.03}, [work(0, 0, 0.9, 4.0)])
    figures = json.loads(json.dumps(HeadTable(scores, found).to_json()))
    assert figures["attribution"]["done_by"] == {"recall": [0, 0]}
    assert figures["attribution"]["heads"][0]["looks"]["recall"] == {"mean": 0.9, "half_width": 0.02}
    assert figures["attribution"]["heads"][0]["costs"]["all"]["mean"] == 8.0
    assert HeadTable(scores, None).to_json() == {"scores": [scores[0].to_json()], "attribution": None}
    assert HeadTable(scores, None).table() in HeadTable(scores, found).table()


@pytest.fixture(scope="module")
def lookup():
    """Documents of one pair and one question: " a 7 : a 7"."""
    return build_corpus(LookupConfig(type="lookup", keys=1, values=40, pairs=1, queries=1, size=40))


def test_a_head_made_to_look_up_values_is_found_and_its_knock_out_costs_that_skill_alone(lookup):
    texts = [f" a {value} : a {value}" for value in range(40)]
    tokenizer = train_byte_pairs(texts * 9, vocab_size=400, special_tokens=[END])
    choices = {"position": {"type": "none"}, "norm": "rms_norm", "zero_init_projections": True}
    model = build_model(
        tiny_config(context_length=6, d_model=44, n_layers=1, n_heads=1, **choices), tokenizer.vocab_size
    ).eval()
    key, value, end, colon, *values = torch.eye(44)
    attention = model.blocks[0].attention.sublayer
    with torch.no_grad():
        embedding = model.embeddings.embedding_VD.zero_()
        for text, vector in ((" a", key), (" :", colon), *((f" {n}", value + values[n]) for n in range(40))):
            [token] = tokenizer.encode(text)
            embedding[token] = vector
        embedding[tokenizer.end_of_text] = end
        # A key looks for values. Where there are none, and from all other tokens, attention rests on the end_of_text.
        attention.W_Q.weight.copy_(100 * torch.outer(value, key) + torch.outer(end, key + value + colon + end))
        attention.W_K.weight.copy_(100 * (torch.outer(value, value) + torch.outer(end, end)))
        attention.W_V.weight.copy_(torch.diag(sum(values)))
        attention.W_O.weight.copy_(torch.eye(44))

    documents = held_out_documents(lookup, tokenizer, 6, n=2)
    found = attribute(model, tokenizer, lookup.language, documents)
    [head] = found.heads
    assert found.evenly == {"recall to 8": pytest.approx(1 / 5)}
    assert head.looks["recall to 8"].mean == pytest.approx(1)
    assert found.done_by("recall to 8") is head
    costs = {skill: cost.mean for skill, cost in head.costs.by_skill.items()}
    assert costs.pop("recall to 8") > 2
    assert costs == dict.fromkeys(costs, pytest.approx(0, abs=1e-5))


def test_the_decided_tokens_of_a_beginning_are_known_in_every_language_that_says_them(lookup):
    tokenizer = train_characters(lookup.documents("train"), special_tokens=[END])
    places = what_decides(lookup.language, tokenizer, " a 17 : a")
    assert places[-1] == []  # a blank is next
    assert what_decides(lookup.language, tokenizer, " a 17 : a ")[-1] == [4, 5]  # the first key is the end_of_text


def test_where_no_words_are_known_to_decide_the_table_has_the_costs_of_all_skills():
    corpus = build_corpus(HiddenConfig(type="hidden", length=20, size=100))
    tokenizer = train_byte_pairs(corpus.documents("train"), vocab_size=260, special_tokens=[END])
    model = small_model(tokenizer)
    found = attribute(model, tokenizer, corpus.language, held_out_documents(corpus, tokenizer, 21, n=3))
    assert found.evenly == {}
    lines = found.table().splitlines()
    assert lines[1].split() == ["head", "symbol", "spelling", "all"]
    assert [line.split()[0] for line in lines[2:]] == ["0.0", "0.1", "1.0", "1.1"]
    cost = found.heads[0].costs.by_skill["symbol"]
    assert lines[2].split()[1:3] == [f"{cost.mean:+.2f}", f"±{cost.half_width:.2f}"]

    listed = ListedCorpus(
        {"ab cd": 0.5, "ac cd": 0.25, "ad cd": 0.25}, n_validation=2
    )  # which does not say what decides
    assert attribute(model, tokenizer, listed.language, held_out_documents(listed, tokenizer, 21, n=2)).evenly == {}

"""What a knock-out costs is the difference of two losses, each of which is the sum of its skills."""

import json
import math
from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from inspection.conftest import CONTEXT
from model.model_axes import build_away_from_zero, tiny_config
from pellucid.corpora.drawn import Drawn
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.estimate import Estimate, mean_of
from pellucid.inspection.interventions import places_of
from pellucid.inspection.knock_out import (
    Costs,
    KnockOutTable,
    costs,
    held_out_documents,
    knock_out_table,
    loss_by_skill,
)
from pellucid.inspection.trace import trace
from pellucid.languages.fables import Fables
from pellucid.model.build import build_model


@pytest.fixture(scope="module")
def model(tokenizer):
    return build_away_from_zero(tiny_config(context_length=CONTEXT, d_model=16), tokenizer.vocab_size).eval()


def test_the_sample_is_the_first_held_out_fables_with_their_exact_floor(corpus, tokenizer, fables):
    assert [fable.text for fable in fables] == list(islice(corpus.documents("validation"), 3))
    for fable in fables:
        assert fable.ids == [tokenizer.end_of_text, *tokenizer.encode(fable.text)]
        assert fable.targets == [*fable.ids[1:], tokenizer.end_of_text]
        assert math.fsum(fable.floor) == pytest.approx(-corpus.language.log_probability(fable.text))
        np.testing.assert_allclose(fable.shares.sum(axis=1), 1)


@pytest.mark.parametrize("knock_out", [[], [("head", 1, 0)], [("feed_forward", 0), ("attention", 1)]])
def test_skills_add_up_to_the_surprise_at_each_fable_read_alone(model, fables, knock_out):
    by_skill_FS = loss_by_skill(model, fables, knock_out)
    for fable, by_skill_S in zip(fables, by_skill_FS, strict=True):
        logits_TV = trace(model, fable.ids, knock_out=knock_out).logits[-1]
        nats_T = F.cross_entropy(logits_TV, torch.tensor(fable.targets), reduction="none").double().numpy()
        np.testing.assert_allclose(by_skill_S, nats_T @ fable.shares, atol=1e-3)
        assert by_skill_S.sum() == pytest.approx(nats_T.sum(), abs=1e-3)


def test_a_long_fable_is_read_as_far_as_the_context_goes(corpus, tokenizer, fables):
    cut = held_out_documents(corpus, tokenizer, context_length=20, n=1)[0]
    assert (cut.ids, cut.targets) == (fables[0].ids[:20], fables[0].targets[:20])
    np.testing.assert_array_equal(cut.floor, fables[0].floor[:20])
    np.testing.assert_array_equal(cut.shares, fables[0].shares[:20])


def test_the_table_has_the_floor_the_intact_model_and_what_each_knock_out_adds(model, corpus, fables):
    table = knock_out_table(model, fables, corpus.language.skills)
    assert [row.places for row in table.rows] == [(place,) for place in places_of(model)]
    intact_FS, without_FS = loss_by_skill(model, fables), loss_by_skill(model, fables, [("head", 0, 1)])
    recall = corpus.language.skills.index("recall")
    difference = table.rows[1].by_skill["recall"].mean
    assert difference == pytest.approx((without_FS - intact_FS)[:, recall].mean())
    for row in table.rows:
        assert sum(cost.mean for cost in row.by_skill.values()) == pytest.approx(row.all.mean)
    assert sum(table.floor.values()) == pytest.approx(np.mean([fable.floor.sum() for fable in fables]))

    figures = json.loads(json.dumps(table.to_json()))
    assert figures["fables"] == 3
    assert figures["knocked_out"][1]["places"] == [["head", 0, 1]]
    assert figures["knocked_out"][1]["nats_per_fable"]["recall"]["mean"] == difference
    lines = table.table().splitlines()
    assert lines[1].split() == ["knocked", "out", *corpus.language.skills, "all"]
    assert lines[5].split()[:3] == ["head", "0.1", f"{table.rows[1].by_skill['choice'].mean:+.2f}"]


def test_columns_of_the_table_stay_apart_however_large_the_numbers():
    large = Estimate(-103.42, 10.01)
    cells = KnockOutTable(4, {"recall": 1.0}, {"recall": 2.0}, [Costs((("head", 1, 0),), {"recall": large}, large)])
    assert cells.table().splitlines()[-1].split() == ["head", "1.0", *["-103.42", "±10.01"] * 2]


def test_places_can_be_knocked_out_together(model, corpus, fables):
    both = [("head", 0, 0), ("head", 0, 1)]
    [row] = knock_out_table(model, fables, corpus.language.skills, [both]).rows
    assert row.name == "head 0.0 + head 0.1"
    without_FS = loss_by_skill(model, fables, both)
    assert row.all.mean == pytest.approx((without_FS - loss_by_skill(model, fables)).sum(axis=1).mean())


def test_a_place_that_gives_nothing_anyway_costs_nothing(tokenizer, corpus, fables):
    config = tiny_config(context_length=CONTEXT, zero_init_projections=True)
    rows = knock_out_table(build_model(config, tokenizer.vocab_size), fables, corpus.language.skills).rows
    assert all(row.all == Estimate(0, 0) for row in rows)


def test_the_interval_is_that_of_the_differences_fable_by_fable():
    easy_and_hard_FS = np.array([[1.0, 2.0], [100.0, 7.0]])
    cost = costs(easy_and_hard_FS, easy_and_hard_FS + np.array([3.0, 0.0]), ["recall", "fact"], [("head", 0, 0)])
    assert cost.by_skill == {"recall": Estimate(3.0, 0.0), "fact": Estimate(0.0, 0.0)}
    assert cost.all == Estimate(3.0, 0.0)
    estimate = mean_of(np.array([1.0, 2.0, 3.0]))
    assert (estimate.mean, estimate.half_width) == (2.0, pytest.approx(1.96 / math.sqrt(3)))


def test_what_cannot_be_measured_is_one_clear_line(model, corpus, tokenizer, fables, monkeypatch):
    with pytest.raises(ConfigError, match=r"knock_out: the model has no place \('head', 0, 2\)"):
        loss_by_skill(model, fables, [("head", 0, 2)])
    with pytest.raises(ConfigError, match="fables: 0 are too few to measure on; give 2 or more"):
        held_out_documents(corpus, tokenizer, CONTEXT, n=0)
    monkeypatch.setattr(tokenizer, "has_words", False)
    with pytest.raises(DataError, match="the tokenizer: its tokens reach across words.*; take a run whose tokenizer"):
        held_out_documents(corpus, tokenizer, CONTEXT)


def test_one_fable_alone_has_no_interval(tokenizer):
    with pytest.raises(DataError, match="the corpus: documents held out: 1, and an interval needs two"):
        held_out_documents(Drawn(Fables(3), 20, 0, 0.05), tokenizer, CONTEXT)

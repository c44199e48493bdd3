"""Loss by skill: the parts add up, and each part is what a loop over tokens finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.data.token_truth import TokenTruth
from pellucid.evaluation.skills import skill_table

SKILLS = ("choice", "spelling", "recall")


def random_truth(seed, n=50):
    rng = np.random.default_rng(seed)
    characters = rng.integers(0, 3, size=(n, len(SKILLS)), dtype=np.uint8)
    characters[:, 1] += characters.sum(axis=1) == 0
    nats = rng.exponential(size=n) * rng.integers(0, 2, size=n)
    return rng, TokenTruth(SKILLS, nats, characters)


@given(st.integers(0, 10_000))
def test_tokens_losses_and_floors_add_up_to_the_whole(seed):
    rng, truth = random_truth(seed)
    places = rng.permutation(50)[:30]
    nats, hits = rng.exponential(size=30), rng.integers(0, 2, size=30).astype(bool)
    table = skill_table(truth, places, nats, hits, n_documents=4)
    scores = table.scores.values()
    assert sum(score.tokens for score in scores) == pytest.approx(30, rel=1e-12)
    assert sum(score.loss_nats for score in scores) == pytest.approx(nats.sum(), rel=1e-12)
    assert sum(score.floor_nats for score in scores) == pytest.approx(truth.nats[places].sum(), rel=1e-12)


def test_each_skill_has_its_share_of_every_token():
    rng, truth = random_truth(0)
    nats, hits = rng.exponential(size=50), rng.integers(0, 2, size=50).astype(bool)
    table = skill_table(truth, np.arange(50), nats, hits, n_documents=1)
    for s, skill in enumerate(SKILLS):
        loss = right = certain = 0.0
        for i in range(50):
            share = truth.characters[i, s] / truth.characters[i].sum()
            loss += share * nats[i]
            if truth.nats[i] == 0:
                certain += share
                right += share * hits[i]
        assert table.scores[skill].loss_nats == pytest.approx(loss)
        assert table.scores[skill].accuracy == pytest.approx(right / certain)


def test_a_skill_that_is_never_certain_has_no_accuracy():
    truth = TokenTruth(SKILLS, np.array([1.0, 0.0]), np.array([[1, 0, 0], [0, 1, 0]], dtype=np.uint8))
    table = skill_table(truth, np.arange(2), np.array([1.5, 0.1]), np.array([True, False]), n_documents=1)
    assert table.scores["choice"].accuracy is None
    assert table.scores["spelling"].accuracy == 0.0
    assert table.scores["recall"].accuracy is None
    assert table.to_json()["choice"]["excess_nats_per_document"] == pytest.approx(0.5)


def test_the_table_names_every_skill_and_the_sum():
    rng, truth = random_truth(3)
    table = skill_table(truth, np.arange(50), rng.exponential(size=50), np.ones(50, dtype=bool), n_documents=2)
    lines = table.table().splitlines()
    assert {line.split()[0] for line in lines[2:-1]} == {*SKILLS, "all"}
    assert "100.0%" in lines[-2]
    assert lines[-1].startswith(f"hardest: {table.hardest}")


def test_the_hardest_skill_lacks_most_at_the_tokens_that_take_it():
    truth = TokenTruth(SKILLS, np.zeros(4), np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=np.uint8))
    table = skill_table(truth, np.arange(4), np.array([0.5, 0.5, 0.5, 0.9]), np.ones(4, dtype=bool), n_documents=1)
    assert table.hardest == "recall"

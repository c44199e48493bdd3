"""A probe finds what is linearly there, and nothing where nothing is."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from pellucid.errors import DataError
from pellucid.inspection import probe as module
from pellucid.inspection.probe import (
    MOST_FREQUENT,
    SHUFFLED_LABELS,
    probe,
    score_of,
    score_of_most_frequent,
    score_of_probe,
    sentence_ends,
    shuffled_by_fable,
)
from pellucid.languages.fables import Fables
from pellucid.languages.fables.reading import PROPERTIES
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer.train import train_byte_pairs

N_FABLES, SENTENCES, WIDTH, CLASSES = 60, 5, 8, 4


@pytest.fixture
def planted():
    """Labels of fables, vectors in which they stand linearly, and vectors of noise."""
    rng = np.random.default_rng(0)
    fables_N = np.repeat(np.arange(N_FABLES), SENTENCES)
    labels_N = rng.integers(CLASSES, size=N_FABLES)[fables_N]
    directions_CD = rng.standard_normal((CLASSES, WIDTH))
    noise_ND = rng.standard_normal((len(fables_N), WIDTH)).astype(np.float32)
    return fables_N, labels_N, (directions_CD[labels_N] + 0.05 * noise_ND).astype(np.float32), noise_ND


def test_a_probe_reads_what_is_planted_whatever_its_scale(planted):
    fables_N, labels_N, planted_ND, _ = planted
    scales_D = np.logspace(-3, 3, WIDTH).astype(np.float32)
    for x_ND in (planted_ND, scales_D * planted_ND + 100 * scales_D):
        assert score_of_probe(x_ND, labels_N, fables_N).mean > 0.99


def test_a_probe_of_noise_and_one_of_labels_dealt_anew_are_right_by_chance(planted):
    fables_N, labels_N, planted_ND, noise_ND = planted
    of_noise = score_of_probe(noise_ND, labels_N, fables_N)
    of_dealt = score_of_probe(planted_ND, shuffled_by_fable(labels_N, fables_N), fables_N)
    for score in (of_noise, of_dealt):
        assert abs(score.mean - 1 / CLASSES) < 1.5 * score.half_width + 0.02
        assert score.mean < 0.45


def test_what_no_line_divides_is_not_found():
    """Exclusive or: a line has at most three of its four corners on the right side, whoever draws it."""
    corners_N2 = np.tile([[0, 0], [0, 1], [1, 0], [1, 1]], (100, 1)).astype(np.float32)
    labels_N = corners_N2.sum(axis=1).astype(int) % 2
    fables_N = np.arange(400) // 4
    assert score_of_probe(corners_N2, labels_N, fables_N).mean <= 0.75
    with_product_N3 = np.column_stack([corners_N2, corners_N2.prod(axis=1)])
    assert score_of_probe(with_product_N3, labels_N, fables_N).mean == 1


def test_dealing_keeps_the_labels_and_gives_all_sentences_of_a_fable_the_same(planted):
    fables_N, labels_N, *_ = planted
    dealt_N = shuffled_by_fable(labels_N, fables_N)
    assert sorted(dealt_N) == sorted(labels_N)
    assert (dealt_N != labels_N).any()
    assert all(len(set(dealt_N[fables_N == fable])) == 1 for fable in range(N_FABLES))


def test_repeating_every_sentence_makes_no_score_more_certain():
    rng = np.random.default_rng(2)
    hits = rng.random(50) < 0.7
    once = score_of(hits, np.arange(50))
    assert once.half_width == pytest.approx(1.96 * (hits.var(ddof=1) / 50) ** 0.5)
    repeated = score_of(np.repeat(hits, 9), np.repeat(np.arange(50), 9))
    assert (repeated.mean, repeated.half_width) == pytest.approx((once.mean, once.half_width))


def test_the_most_frequent_is_learned_from_one_half_and_scored_on_the_other():
    labels_N = np.array([1, 0, 1, 0, 0, 1, 1, 0])  # 1, 1, 0, 1 to learn from; 0, 0, 1, 0 to be scored on
    assert score_of_most_frequent(labels_N, np.arange(8)).mean == 0.25


class WordsSoFar(LanguageModel):
    """Its hidden vector is how often each token has been read so far, which says what has been told; or nothing."""

    def __init__(self, vocab_size, remembers):
        super().__init__(vocab_size, 1000)
        self.counts_VV = nn.Parameter(torch.eye(vocab_size) if remembers else torch.zeros(vocab_size, vocab_size))
        self.read = nn.Identity()

    def hidden_modules(self):
        return [self.read]

    def forward(self, tokens_BT, state=None):
        return self.read(self.counts_VV[tokens_BT].cumsum(dim=1))


@pytest.fixture(scope="module")
def fables():
    """A small world, some of its fables, and a tokenizer that knows their words."""
    grammar, rng = Fables(3), random.Random(3)
    texts = [grammar.write(rng) for _ in range(80)]
    return grammar, texts, train_byte_pairs(texts, vocab_size=500, special_tokens=["<|endoftext|>"])


def test_a_probe_reads_what_a_fable_has_told_off_a_model_that_remembers(fables, monkeypatch):
    grammar, texts, tokenizer = fables
    monkeypatch.setattr(module, "MOST_ITERATIONS", 15)
    remembers, forgets = (WordsSoFar(tokenizer.vocab_size, each) for each in (True, False))
    table = probe(remembers, forgets, tokenizer, grammar, texts)
    assert list(table.scores) == [
        MOST_FREQUENT,
        SHUFFLED_LABELS,
        *("layer 0", "layer last", "untrained, layer 0", "untrained, layer last"),
    ]
    assert tuple(table.n_classes) == PROPERTIES
    assert table.n_classes["animal"] == 3
    accuracy = {row: {name: score.mean for name, score in cells.items()} for row, cells in table.scores.items()}
    assert accuracy["layer last"]["plot"] > 0.5 > 3 * accuracy[SHUFFLED_LABELS]["plot"]
    for name in ("animal", "pronoun", "plot"):
        assert accuracy["layer last"][name] > accuracy[SHUFFLED_LABELS][name] + 0.1
        assert accuracy["layer last"][name] > accuracy[MOST_FREQUENT][name] + 0.1
        assert accuracy["untrained, layer last"][name] == accuracy[MOST_FREQUENT][name], "constant vectors say nothing"
    shown = table.table()
    assert "(40 fables to learn from, 40 to be scored on)" in shown
    assert f"{100 * accuracy['layer last']['plot']:.1f} ± " in shown
    assert table.to_json()["scores"]["layer 0"]["plot"]["accuracy"] == accuracy["layer 0"]["plot"]


def test_at_each_sentence_end_that_counts_as_told_which_the_text_has_decided(fables):
    grammar, texts, tokenizer = fables
    ends = sentence_ends(tokenizer, grammar, texts)
    told = [grammar.told_by(text) for text in texts]
    n_told = dict.fromkeys(PROPERTIES, 0)
    for i, (fable, token) in enumerate(ends.places):
        begun = tokenizer.decode(tokenizer.encode(texts[fable])[: token + 1])
        assert texts[fable].startswith(begun)
        assert begun.rstrip('"')[-1] in ".!?"
        for name, (value, decided_at) in told[fable].items():
            assert ends.told[name][i] == (value if decided_at <= len(begun) else None)
            n_told[name] += decided_at <= len(begun)
    assert len(ends.places) > 4 * len(texts)
    assert n_told["animal"] > n_told["plot"] > n_told["moral"] > 0


def test_what_no_text_has_told_is_left_out(fables, monkeypatch):
    grammar, texts, tokenizer = fables
    monkeypatch.setattr(module, "MOST_ITERATIONS", 2)
    model = WordsSoFar(tokenizer.vocab_size, remembers=True)
    begun = [text[: text.index(". ") + 5] for text in texts[:20]]
    table = probe(model, model, tokenizer, grammar, begun)
    assert tuple(table.n_classes) == ("animal", "pronoun", "trait")
    assert all(tuple(cells) == tuple(table.n_classes) for cells in table.scores.values())


def test_too_few_fables_are_refused(fables):
    grammar, texts, tokenizer = fables
    model = WordsSoFar(tokenizer.vocab_size, remembers=True)
    with pytest.raises(DataError, match="7 fables are too few to learn from and to be scored on; take at least 8"):
        probe(model, model, tokenizer, grammar, texts[:7])

"""The bound that no honest model breaks, what it says about invention, and the checks that look for a reason."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pellucid.data.token_file import TokenFile
from pellucid.evaluation import leaks
from pellucid.evaluation.estimate import ratio
from pellucid.evaluation.leaks import why_below_the_floor
from pellucid.evaluation.proof import by_document, chance_of, impossible_mass
from tiny import CPU_FLOAT32, VOCAB_SIZE, tiny_decoder

E = VOCAB_SIZE - 1
TOKENS = TokenFile("new", np.array([E, 1, 2, 3, E, 4, 5, 6, 7, E, 2, 2, E]), np.array([0, 4, 9, 12]))


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=6), st.lists(st.floats(0.01, 1), min_size=3, max_size=6))
def test_no_model_is_below_the_floor_more_often_than_the_bound_says(truth, model):
    """Exactly, over all pairs of documents of a language, for any model, also one with mass on other texts."""
    n = min(len(truth), len(model) - 1)
    p_X = np.array(truth[:n]) / sum(truth[:n])
    q_X = np.array(model[:n]) / sum(model)
    excess_XX = np.add.outer(np.log(p_X / q_X), np.log(p_X / q_X))
    p_XX = np.outer(p_X, p_X)
    assert (p_XX * np.exp(-excess_XX)).sum() == pytest.approx(q_X.sum() ** 2)
    for excess in excess_XX.flat:
        assert p_XX[excess_XX <= excess].sum() <= chance_of(excess) + 1e-12


def test_the_mass_on_impossible_texts_is_that_of_the_model():
    """q has 0.2 on texts that p cannot have; documents come as often as p says."""
    p_X, q_X = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.5, 0.2])
    excess_F = np.repeat(np.log(p_X / q_X), [500, 300, 200])
    assert impossible_mass(excess_F).mean == pytest.approx(0.2)
    assert impossible_mass(np.zeros(10)).mean == 0


def test_the_interval_of_the_impossible_mass_holds_it_19_times_of_20():
    rng = np.random.default_rng(0)
    p_X, q_X = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.5, 0.2])
    masses = [impossible_mass(np.log(p_X / q_X)[rng.choice(3, 500, p=p_X)]) for _ in range(400)]
    held = np.mean([abs(each.mean - 0.2) <= each.half_width for each in masses])
    assert held == pytest.approx(0.95, abs=0.035)  # three standard errors of 400 trials


def test_the_interval_of_a_contest_holds_the_true_excess_19_times_of_20():
    """Of a language of three documents, whose true share is Σ p excess / Σ p floor."""
    rng = np.random.default_rng(1)
    p_X, q_X = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.35, 0.25])
    excess_X, floor_X = np.log(p_X / q_X), -np.log(p_X)
    drawn = (rng.choice(3, 300, p=p_X) for _ in range(600))
    estimates = [ratio(excess_X[documents], floor_X[documents]) for documents in drawn]
    true = (p_X @ excess_X) / (p_X @ floor_X)
    held = np.mean([abs(each.mean - true) <= each.half_width for each in estimates])
    assert held == pytest.approx(0.95, abs=0.03)  # three standard errors of 600 trials


def test_what_stands_in_a_document_is_added_up_in_any_order_and_documents_without_places_do_not_count():
    values, places = np.array([8.0, 1, 2, 4, 16]), np.array([11, 0, 2, 3, 10])
    assert by_document(values, places, TOKENS.boundaries).tolist() == [7.0, 24.0]


class Cheat(nn.Module):
    """A decoder whose logits are changed on their way out."""

    def __init__(self, change) -> None:
        super().__init__()
        self.decoder, self.change = tiny_decoder(), change
        self.context_length = self.decoder.context_length

    def forward(self, tokens_BT):
        return self.change(self.decoder(tokens_BT), tokens_BT)


def ahead(logits_BTV, tokens_BT):
    """One logit of each place is raised by the token that comes two places later."""
    later_BT = torch.cat([tokens_BT[:, 2:], tokens_BT[:, :2]], dim=1)
    return logits_BTV + 3 * nn.functional.one_hot(later_BT, VOCAB_SIZE)


def test_an_honest_model_has_no_reason_and_one_that_looks_ahead_is_found():
    assert why_below_the_floor(tiny_decoder(), TOKENS, CPU_FLOAT32) == []
    assert why_below_the_floor(Cheat(ahead), TOKENS, CPU_FLOAT32) == ["what it says of a token depends on later ones"]


def test_a_loss_whose_probabilities_do_not_add_up_is_found(monkeypatch):
    whole = leaks.cross_entropy
    monkeypatch.setattr(leaks, "cross_entropy", lambda logits_NV, targets_N: 0.9 * whole(logits_NV, targets_N))
    assert why_below_the_floor(tiny_decoder(), TOKENS, CPU_FLOAT32) == ["its probabilities do not add up to 1"]


def test_documents_of_the_training_text_are_counted_and_parts_of_them_are_not():
    train = TokenFile("train", np.array([E, 4, 5, 6, 7, E, 1, 2, E, 2, 2, 2, E, 2, 2, E]), np.array([0, 5, 8, 12, 15]))
    assert why_below_the_floor(tiny_decoder(), TOKENS, CPU_FLOAT32, train) == [
        "2 of its documents are in the training text"
    ]


def test_the_bound_is_one_line():
    assert chance_of(3.0) == 1
    assert chance_of(-math.log(100)) == pytest.approx(0.01)

"""Bayes' rule for `chains` is attention: a head on the earlier places, and a sink at the first token for the prior."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from pellucid.languages.chains import Chains
from pellucid.languages.symbols import text_of
from pellucid.model.attention import causal_mask, scaled_dot_product

LARGE = 1e3  # a score so low that its weight is 0


def by_hand(states: list[int], k: int, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    """p(next state) after each of the states, (T, k), and the weight of the first token in it, (T,).

    Place 0 is the token before the text. A first head, not shown, tells each place the state before its own: `before`.
    The query asks which of them is the state now, and the value says what came. So each earlier step from this state
    has a score of 0, and a vote for where it led; the first token has a score of ln(kα), and votes for all states.
    """
    x_T, before_T = torch.tensor(states), torch.tensor([k, *states[:-1]])  # before the first state comes none
    now_TK, before_TK = one_hot(x_T, k + 1).double(), one_hot(before_T, k + 1).double()
    q_TK = torch.cat([LARGE * now_TK[:, :k], torch.ones(len(states), 1)], dim=1)
    q_TK *= math.sqrt(k + 1)  # which attention divides by
    keys_TK = torch.cat([before_TK[:, :k], torch.full((len(states), 1), -LARGE)], dim=1)
    first_K = torch.cat([torch.zeros(k), torch.tensor([math.log(k * alpha)], dtype=torch.float64)])
    v_SK = torch.cat([torch.full((1, k), 1 / k, dtype=torch.float64), one_hot(x_T, k)])
    k_SK = torch.cat([first_K[None], keys_TK]).double()
    mask_TS = causal_mask(len(states), len(states) + 1, like=q_TK)
    weights = torch.eye(len(states) + 1).double()[None, None]  # as values: each key's own weight
    p_TK, weights_TS = (
        scaled_dot_product(q_TK[None, None], k_SK[None, None], values, mask_TS, 0.0)[0, 0]
        for values in (v_SK[None, None], weights)
    )
    return p_TK, weights_TS[:, 0]


@given(st.data(), st.integers(2, 6), st.sampled_from([0.1, 0.3, 1.0, 3.0, 10.0]))
def test_one_head_with_a_sink_is_the_best_reader(data, k, alpha):
    states = data.draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=30))
    language = Chains(k, alpha, len(states) + 1)
    p_TK, _ = by_hand(states, k, alpha)
    state = language.begin()
    for t, now in enumerate(states):
        state = language.after(state, language.names[now])
        assert p_TK[t].tolist() == pytest.approx(list(language.following(state).values()), abs=1e-12)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.sampled_from([0.1, 1.0, 10.0]))
def test_the_weight_of_the_sink_is_that_of_the_prior(states, alpha):
    """kα / (n + kα), where n is how often the chain has left this state before."""
    _, sink_T = by_hand(states, 3, alpha)
    seen = [states[:t].count(now) for t, now in enumerate(states)]
    assert sink_T.tolist() == pytest.approx([3 * alpha / (n + 3 * alpha) for n in seen])


def test_weights_written_by_hand_reach_the_floor_of_chains():
    language = Chains(3, 1.0, 100)
    states = [language.names.index(symbol) for symbol in "abacabbcacbbacabcbacabcaabbc" * 4][:100]
    p_TK, _ = by_hand(states, 3, 1.0)
    nats = math.log(3) - sum(math.log(p_TK[t, new]) for t, new in enumerate(states[1:]))
    assert nats == pytest.approx(-language.log_probability(text_of([language.names[state] for state in states])))

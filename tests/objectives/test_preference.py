"""Pairs of answers: the losses are those of the papers, and the batches may be cut anywhere."""

import math
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from languages import END, TARGETS_PXT, A, B, Tabular, log_p_of_answers, rows_of
from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.preference import (
    PairBatch,
    at_last_token,
    dpo,
    dpo_loss,
    implicit_rewards,
    pairwise_loss,
    ranking_loss,
    reward_model,
)
from reference import policy as naive

log_p = st.floats(-60, 0)


def some_pairs(reference=None, n=6):
    """Answers 2i and 2i + 1 to the first prompt as chosen and rejected."""
    reference = reference or Tabular(seed=3)
    inputs_NT, targets_NT = rows_of((A,), [(END,), (B, A, END), (A, B, B), (A, END), (B, END), (A, A, A)][:n])
    pairs = PairBatch(inputs_NT.view(-1, 2, 4), targets_NT.view(-1, 2, 4), torch.zeros(n // 2, 2))
    with torch.no_grad():
        return pairs._replace(reference_PK=log_p_of_rows(reference, pairs).view(-1, 2))


def log_p_of_rows(model, batch):
    """log p of each answer of a batch, one after the other, summed over its tokens."""
    inputs_NT, targets_NT = batch.inputs_PKT.flatten(0, 1), batch.targets_PKT.flatten(0, 1)
    logits_NTV = model(inputs_NT).log_softmax(dim=-1)
    picked_NT = logits_NTV.gather(-1, targets_NT.clamp(min=0)[..., None])[..., 0]
    return (picked_NT * (targets_NT != IGNORE_INDEX)).sum(dim=1)


def test_a_policy_that_is_the_reference_is_surprised_by_log_2():
    model = Tabular(seed=3)
    loss = dpo(model, some_pairs(model), beta=0.1)
    assert loss.sum.item() / 3 == pytest.approx(math.log(2), abs=1e-12)
    assert loss.count == 3
    assert loss.figures["accuracy"] == 1.5, "a tie is half right"


def test_the_dpo_loss_is_that_of_torchtune_for_its_own_inputs():
    """The inputs of torchtune's test of DPOLoss: margins of 0, 10 and 20 nats, at β = 0.1."""
    chosen, rejected = torch.tensor([-0.5, -10.0, -1.0]), torch.tensor([-0.1, -30.0, -21.0])
    reference_chosen, reference_rejected = torch.tensor([-0.5, -10.1, -0.1]), torch.tensor([-0.1, -20.1, -0.1])
    answers, references = torch.stack([chosen, rejected], 1), torch.stack([reference_chosen, reference_rejected], 1)
    losses = dpo_loss(answers, references, beta=0.1)
    torch.testing.assert_close(losses, torch.tensor([0.693147, 0.313262, 0.126928]), atol=1e-6, rtol=0)


@given(st.lists(st.tuples(log_p, log_p, log_p, log_p), min_size=1, max_size=5), st.floats(0.01, 2))
def test_the_dpo_loss_is_that_of_the_plain_formula(pairs, beta):
    losses = dpo_loss(*torch.tensor(pairs, dtype=torch.float64).split(2, dim=1), beta)
    expected = [naive.dpo_loss(*pair, beta) for pair in pairs]
    assert losses.tolist() == pytest.approx(expected, abs=1e-9)


@given(st.floats(-20, 20), st.floats(-20, 20), st.floats(-50, 50))
def test_only_the_difference_of_rewards_counts(chosen, rejected, shift):
    chosen, rejected = torch.tensor([chosen], dtype=torch.float64), torch.tensor([rejected], dtype=torch.float64)
    loss = pairwise_loss(chosen, rejected)
    torch.testing.assert_close(pairwise_loss(chosen + shift, rejected + shift), loss, atol=1e-9, rtol=1e-9)
    likelihoods = (-loss).exp() + (-pairwise_loss(rejected, chosen)).exp()
    torch.testing.assert_close(likelihoods, torch.ones_like(loss))


@given(st.lists(st.tuples(log_p, log_p), min_size=1, max_size=5))
def test_a_ranking_of_two_costs_what_a_pair_does_to_the_last_bit(pairs):
    rewards_P2 = torch.tensor(pairs)
    assert torch.equal(ranking_loss(rewards_P2), pairwise_loss(*rewards_P2.unbind(dim=1)))


rewards_of_answers = st.lists(st.floats(-20, 20), min_size=2, max_size=5)


@given(rewards_of_answers)
def test_the_probabilities_of_all_rankings_sum_to_1(rewards):
    """Equation P16: and one by one they are those of choosing the best, then the best of the rest."""
    rankings = [list(ranking) for ranking in permutations(rewards)]
    p = (-ranking_loss(torch.tensor(rankings, dtype=torch.float64))).exp()
    assert p.sum().item() == pytest.approx(1, abs=1e-9)
    assert p.tolist() == pytest.approx([naive.p_of_ranking(ranking) for ranking in rankings], abs=1e-9)


@given(rewards_of_answers)
def test_the_gradient_of_a_ranking_is_that_of_the_plain_formula(rewards):
    """dl/dr_i: at each choice that answer i could have won, its probability to win, minus 1 where it did."""
    rewards_1K = torch.tensor([rewards], dtype=torch.float64, requires_grad=True)
    ranking_loss(rewards_1K).sum().backward()
    assert rewards_1K.grad[0].tolist() == pytest.approx(naive.gradient_of_ranking(rewards), abs=1e-9)


def test_dpo_of_rankings_compares_implicit_rewards_and_may_be_cut_into_parts():
    model, reference, pairs = Tabular(seed=5), Tabular(seed=3), some_pairs()
    rankings = PairBatch(*(column.reshape(2, 3, *column.shape[2:]) for column in pairs))
    loss = dpo(model, rankings, beta=0.5)
    with torch.no_grad():
        mine, theirs = (log_p_of_rows(each, rankings).view(2, 3) for each in (model, reference))
    rewards = (0.5 * (mine - theirs)).tolist()
    assert loss.sum.item() == pytest.approx(sum(-math.log(naive.p_of_ranking(ranking)) for ranking in rewards))
    in_order = [[a > b for a, b in combinations(ranking, 2)] for ranking in rewards]
    assert loss.figures["accuracy"].item() == pytest.approx(sum(sum(pairs) / 3 for pairs in in_order))
    assert loss.figures["margin"].item() == pytest.approx(sum(ranking[0] - ranking[2] for ranking in rewards))
    parts = [dpo(model, rankings.part(slice(i, i + 1)), beta=0.5) for i in range(2)]
    assert sum(part.sum for part in parts).item() == pytest.approx(loss.sum.item())
    same = dpo(reference, rankings, beta=0.5)
    assert same.sum.item() / 2 == pytest.approx(math.log(6)), "all six rankings are equally likely to the reference"


def test_dpo_adds_up_the_tokens_of_answers_and_nothing_else():
    """The whole objective: prompts and padding do not count, and log-probabilities are summed, not averaged."""
    model, pairs = Tabular(seed=5), some_pairs()
    loss = dpo(model, pairs, beta=0.5)
    log_p_X = log_p_of_answers(model)[0].tolist()
    answers = [tuple(targets[targets != IGNORE_INDEX].tolist()) for targets in pairs.targets_PKT.flatten(0, 1)]
    listed = [tuple(targets[targets != IGNORE_INDEX].tolist()) for targets in TARGETS_PXT[0]]
    mine = [log_p_X[listed.index(answer)] for answer in answers]
    theirs = pairs.reference_PK.flatten().tolist()
    expected = sum(naive.dpo_loss(*mine[i : i + 2], *theirs[i : i + 2], 0.5) for i in (0, 2, 4))
    assert loss.sum.item() == pytest.approx(expected)
    padded = pairs._replace(inputs_PKT=pairs.inputs_PKT.clone())
    padded.inputs_PKT[0, 0, 2:] = A  # after the END of the first answer
    assert dpo(model, padded, beta=0.5).sum == loss.sum


def test_a_reward_is_read_at_the_last_token_of_an_answer():
    inputs_NT, targets_NT = rows_of((A,), [(END,), (B, END), (A, B, B)])
    places_NT = torch.arange(4.0).expand(3, 4)
    assert at_last_token(places_NT, targets_NT).tolist() == [1, 2, 3]
    assert inputs_NT.gather(1, torch.tensor([[1], [2], [3]]))[:, 0].tolist() == [END, END, B]


def test_a_reward_model_learns_from_the_scores_of_both_answers():
    model, pairs = Tabular(), some_pairs()
    with torch.no_grad():
        model.values.copy_(torch.randn(len(model.values), generator=torch.Generator().manual_seed(0)))
    loss = reward_model(lambda tokens: model.with_values(tokens)[1], pairs)
    places = [(1, 3), (3, 2), (2, 3)]
    values = model.values[model.prefixes(pairs.inputs_PKT.flatten(0, 1))].view(3, 2, 4)
    rewards = [(values[i, 0, places[i][0]].item(), values[i, 1, places[i][1]].item()) for i in range(3)]
    expected = sum(-math.log(naive.sigmoid(chosen - rejected)) for chosen, rejected in rewards)
    assert loss.sum.item() == pytest.approx(expected, rel=1e-6)
    assert loss.figures["accuracy"].item() == sum(chosen > rejected for chosen, rejected in rewards)
    assert loss.figures["margin"].item() == pytest.approx(sum(c - r for c, r in rewards), rel=1e-5)
    loss.sum.backward()
    assert model.table.grad is None
    assert len(model.values.grad.nonzero()) == 6


@pytest.mark.parametrize("cut", [1, 2])
def test_pairs_may_be_cut_into_parts(cut):
    model, pairs = Tabular(seed=5), some_pairs()
    whole = dpo(model, pairs, beta=0.5)
    parts = [dpo(model, pairs.part(rows), beta=0.5) for rows in (slice(0, cut), slice(cut, None))]
    assert sum(part.sum for part in parts).item() == pytest.approx(whole.sum.item())
    assert sum(part.count for part in parts) == whole.count == pairs.n_losses == 3
    for name, figure in whole.figures.items():
        assert sum(part.figures[name] for part in parts).item() == pytest.approx(figure.item())


def test_the_implicit_reward_is_the_reward_for_which_the_policy_is_optimal():
    """π* of a reward gives it back, up to one constant per prompt (equation P8 turned round)."""
    reference_X = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    rewards_X = torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    optimum_X = (reference_X + rewards_X / 0.7).log_softmax(dim=0)
    found_X = implicit_rewards(optimum_X, reference_X, beta=0.7)
    torch.testing.assert_close(found_X - found_X[0], rewards_X)

"""Rewards: advantages, surrogate, values and KL estimators are those of the papers."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from languages import (
    ANSWERS,
    INPUTS_PXT,
    PROMPTS,
    TARGETS_PXT,
    Tabular,
    log_p_of_answers,
    log_p_of_tokens,
    some_rewards,
)
from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import (
    RolloutBatch,
    clipped_surrogate,
    entropy,
    gae,
    group_advantages,
    grpo,
    is_clipped,
    k1,
    k2,
    k3,
    log_distributions,
    log_probabilities,
    ppo,
    token_rewards,
)
from reference import policy as naive

rewards = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


def some_rollouts(old, reference):
    """All answers to both prompts as if they were rollouts, with advantages and returns drawn at random."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        old_PGT, reference_PGT = (log_p_of_tokens(model, INPUTS_PXT, TARGETS_PXT) for model in (old, reference))
    advantages_PGT, returns_PGT = torch.randn(2, *old_PGT.shape, generator=generator, dtype=torch.float64)
    rewards_PG = some_rewards()
    return RolloutBatch(INPUTS_PXT, TARGETS_PXT, old_PGT, reference_PGT, advantages_PGT, rewards_PG, returns_PGT)


def test_the_advantages_of_one_right_answer_in_four():
    advantages = group_advantages(torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]]))
    torch.testing.assert_close(advantages[0], torch.tensor([1.4997, -0.4999, -0.4999, -0.4999]), atol=5e-5, rtol=0)
    assert (advantages[1] == 0).all(), "equal rewards teach nothing"


@given(rewards, st.floats(-5, 5))
def test_advantages_are_those_of_the_plain_formula_and_know_no_zero_of_rewards(group, shift):
    advantages = group_advantages(torch.tensor([group], dtype=torch.float64))
    assert advantages[0].tolist() == pytest.approx(naive.group_advantages(group), abs=1e-8)
    assert advantages.sum().item() == pytest.approx(0, abs=1e-6)
    shifted = group_advantages(torch.tensor([group], dtype=torch.float64) + shift)
    torch.testing.assert_close(shifted, advantages, atol=1e-6, rtol=1e-6)


@given(st.floats(-3, 0), st.floats(-3, 0), st.floats(-3, 3), st.floats(0, 0.5))
def test_the_surrogate_is_that_of_the_plain_formula(log_p, old, advantage, clip):
    loss = clipped_surrogate(*torch.tensor([log_p, old, advantage], dtype=torch.float64), clip)
    assert loss.item() == pytest.approx(naive.surrogate(log_p, old, advantage, clip), abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "is_held"),
    [(1.3, 1, True), (1.3, -1, False), (0.7, -1, True), (0.7, 1, False), (1.1, 1, False), (0.9, -1, False)],
)
def test_clipping_stops_what_has_gone_far_enough_and_never_what_must_come_back(ratio, advantage, is_held):
    log_p = torch.tensor(math.log(ratio), dtype=torch.float64, requires_grad=True)
    old, advantages = torch.zeros_like(log_p), torch.tensor(float(advantage), dtype=torch.float64)
    clipped_surrogate(log_p, old, advantages, clip=0.2).backward()
    assert log_p.grad.item() == (0 if is_held else pytest.approx(-ratio * advantage))
    assert is_clipped(log_p, old, advantages, clip=0.2).item() is is_held


@pytest.mark.parametrize("answers", [[3, 4, 5, 6], [0, 1, 3, 4]], ids=["of one length", "of different lengths"])
def test_on_policy_the_loss_is_minus_the_mean_of_length_times_advantage(answers):
    """So it is zero for answers of one length alone. What it is for is its gradient."""
    model = Tabular(seed=4)
    batch = RolloutBatch(*(tensor[:, answers] for tensor in some_rollouts(model, model)))
    advantages_PG = group_advantages(torch.tensor([[1.0, 0, 0, 0]] * 2, dtype=torch.float64))
    loss = grpo(model, batch._replace(advantages_PGT=advantages_PG[..., None]), beta=0.1, clip=0.2)
    lengths = [len(ANSWERS[x]) for x in answers]
    expected = -sum(length * a for length, a in zip(lengths, advantages_PG[0].tolist(), strict=True)) / 4
    assert loss.sum.item() / loss.count == pytest.approx(expected, abs=1e-12)
    assert (abs(expected) < 1e-12) == (len(set(lengths)) == 1)
    loss.sum.backward()
    assert model.table.grad.norm() > 0.1
    assert loss.figures["clip_fraction"] == 0
    assert loss.figures["kl"].item() == pytest.approx(0, abs=1e-12)


def test_the_gradient_on_policy_is_that_of_the_mean_reward():
    """The policy gradient theorem: over all answers, each weighted with its probability, exactly."""
    model, rewards_PX = Tabular(seed=4), some_rewards()
    p_PX = log_p_of_answers(model).exp()
    mean_reward = (p_PX * rewards_PX).sum()
    [expected] = torch.autograd.grad(mean_reward, model.table)
    weights_PX = p_PX.detach()
    batch = some_rollouts(model, model)._replace(advantages_PGT=(weights_PX * (rewards_PX - 7))[..., None])
    grpo(model, batch, beta=0, clip=0.2).sum.backward()
    torch.testing.assert_close(-model.table.grad, expected)


def test_over_all_groups_the_gradient_is_that_of_the_mean_reward_times_1_less_1_over_the_group():
    """All pairs of answers, each weighted with its probability: each answer is half of what it is compared with."""
    model, rewards_PX = Tabular(seed=4), some_rewards()
    p_PX = log_p_of_answers(model).exp()
    [expected] = torch.autograd.grad((p_PX * rewards_PX).sum(), model.table)
    pairs_N2, p_PX = torch.cartesian_prod(*[torch.arange(len(ANSWERS))] * 2), p_PX.detach()
    rewards_PN2, weights_PN = rewards_PX[:, pairs_N2], p_PX[:, pairs_N2].prod(dim=-1)
    advantages_PN2 = (rewards_PN2 - rewards_PN2.mean(dim=-1, keepdim=True)) * weights_PN[..., None]
    batch = some_rollouts(model, model)
    groups = RolloutBatch(*(tensor[:, pairs_N2].flatten(0, 1) for tensor in batch))
    loss = grpo(model, groups._replace(advantages_PGT=advantages_PN2.flatten(0, 1)[..., None]), beta=0, clip=0.2)
    (loss.sum / 2).backward()
    torch.testing.assert_close(-model.table.grad, expected * (1 - 1 / 2))


def as_numbers(batch, log_p_PGT, *tensors):
    """For each answer its tokens, each a tuple of its numbers, as the loops of the reference take them."""
    columns = torch.stack([log_p_PGT, *tensors], dim=-1).detach().flatten(0, 1)
    masks = (batch.targets_PGT != IGNORE_INDEX).flatten(0, 1)
    return [[tuple(token.tolist()) for token in answer[mask]] for answer, mask in zip(columns, masks, strict=True)]


@pytest.mark.parametrize("beta", [0, 0.3])
def test_the_loss_of_grpo_is_that_of_the_plain_loop(beta):
    model, batch = Tabular(seed=4), some_rollouts(Tabular(seed=5), Tabular(seed=6))
    batch = batch._replace(advantages_PGT=batch.advantages_PGT[..., :1])
    loss = grpo(model, batch, beta=beta, clip=0.2)
    answers = as_numbers(batch, log_p_of_tokens(model, *batch[:2]), batch.old_PGT, batch.reference_PGT)
    expected = naive.grpo(list(zip(answers, batch.advantages_PGT.flatten().tolist(), strict=True)), beta, 0.2)
    assert loss.sum.item() / loss.count == pytest.approx(expected)
    assert loss.count == len(PROMPTS) * len(ANSWERS)
    assert 0 < loss.figures["clip_fraction"] < loss.count


def test_the_loss_of_ppo_is_that_of_the_plain_loop():
    model, batch = Tabular(seed=4), some_rollouts(Tabular(seed=5), Tabular(seed=6))
    with torch.no_grad():
        model.values.copy_(torch.randn(len(model.values), generator=torch.Generator().manual_seed(0)).round(decimals=2))
    loss = ppo(model.with_values, batch, clip=0.2, value_weight=0.7)
    values_PGT = model.values[model.prefixes(batch.inputs_PGT.flatten(0, 1))].view(batch.old_PGT.shape)
    log_p_PGT = log_p_of_tokens(model, *batch[:2])
    answers = as_numbers(batch, log_p_PGT, batch.old_PGT, batch.advantages_PGT, values_PGT, batch.returns_PGT)
    assert loss.sum.item() / loss.count == pytest.approx(naive.ppo(answers, 0.2, 0.7), rel=1e-6)


@pytest.mark.parametrize("objective", ["grpo", "ppo"])
def test_rollouts_may_be_cut_into_parts_and_padded(objective):
    model, batch = Tabular(seed=4), some_rollouts(Tabular(seed=5), Tabular(seed=6))

    def loss_of(batch):
        if objective == "grpo":
            return grpo(model, batch, beta=0.1, clip=0.2)
        return ppo(model.with_values, batch, clip=0.2, value_weight=0.5)

    whole, parts = loss_of(batch), [loss_of(batch.part(slice(i, i + 1))) for i in range(2)]
    assert sum(part.sum for part in parts).item() == pytest.approx(whole.sum.item())
    assert sum(part.count for part in parts) == whole.count == batch.n_losses
    for name, figure in whole.figures.items():
        assert sum(part.figures[name] for part in parts).item() == pytest.approx(figure.item()), name
    other = batch.inputs_PGT.clone()
    other[batch.inputs_PGT == 2] = 0  # END is an input only where nothing follows it that counts
    assert loss_of(batch._replace(inputs_PGT=other)).sum == whole.sum


@given(st.integers(1, 6), st.floats(0, 1), st.floats(0.5, 1), st.data())
def test_advantages_over_time_are_sums_of_later_surprises(n_tokens, gae_lambda, discount, data):
    """One answer in the middle of a row, whose other values must not count."""
    numbers = arrays.arrays(float, (2, n_tokens), elements=st.floats(-3, 3))
    token_rewards_T, values_T = data.draw(numbers)
    expected = naive.gae(token_rewards_T.tolist(), values_T.tolist(), discount, gae_lambda)
    is_answer_T = torch.tensor([False] * 2 + [True] * n_tokens + [False] * 3)
    rows = [F.pad(torch.from_numpy(x), (2, 3), value=99.0) for x in (token_rewards_T, values_T)]
    found = gae(*rows, is_answer_T, discount=discount, gae_lambda=gae_lambda)
    for row, numbers_T in zip(found, expected, strict=True):
        assert row[is_answer_T].tolist() == pytest.approx(numbers_T, abs=1e-9)
        assert (row[~is_answer_T] == 0).all()


def test_with_lambda_1_the_return_is_the_reward_to_come_and_with_0_one_token_ahead():
    token_rewards_T, values_T = torch.tensor([1.0, 2, 4]), torch.tensor([10.0, 20, 30])
    everywhere = torch.ones(3, dtype=torch.bool)
    _, returns = gae(token_rewards_T, values_T, everywhere, discount=1, gae_lambda=1)
    assert returns.tolist() == [7, 6, 4]
    _, returns = gae(token_rewards_T, values_T, everywhere, discount=1, gae_lambda=0)
    assert returns.tolist() == [21, 32, 4]


def test_the_reward_comes_with_the_last_token_and_the_penalty_with_each():
    batch = some_rollouts(Tabular(seed=5), Tabular(seed=6))
    is_answer_PGT = batch.targets_PGT != IGNORE_INDEX
    found = token_rewards(batch.rewards_PG, batch.old_PGT, batch.reference_PGT, is_answer_PGT, beta=0.3)
    for index in [(p, x) for p in range(2) for x in range(len(ANSWERS))]:
        tensors = [tensor[index][is_answer_PGT[index]].tolist() for tensor in (batch.old_PGT, batch.reference_PGT)]
        expected = naive.token_rewards(batch.rewards_PG[index].item(), *tensors, 0.3)
        assert found[index][is_answer_PGT[index]].tolist() == pytest.approx(expected)
    assert (found[~is_answer_PGT] == 0).all()


def test_log_probabilities_are_those_of_the_drawn_distribution_and_zero_without_a_target():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1, IGNORE_INDEX, 4], [0, 2, IGNORE_INDEX]])
    found = log_probabilities(logits, targets, temperature=0.5)
    expected = (2 * logits).log_softmax(dim=-1)
    assert found[0, 2].item() == pytest.approx(expected[0, 2, 4].item(), rel=1e-5)
    assert (found[targets == IGNORE_INDEX] == 0).all()
    assert log_probabilities(logits.bfloat16(), targets).dtype == torch.float32


def test_entropy_is_that_of_the_next_token():
    logits = torch.tensor([[[0.0, 0, 0, 0], [100.0, 0, 0, 0], [math.log(3.0), 0, -200, -200]]])
    expected = [math.log(4), 0, 0.75 * math.log(4 / 3) + 0.25 * math.log(4)]
    assert entropy(log_distributions(logits))[0].tolist() == pytest.approx(expected, abs=1e-5)


# The KL estimators, over all tokens that can be drawn: nothing here is left to chance.
def two_distributions():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([1.0, 0.5, -0.5, 0.0], dtype=torch.float64).log_softmax(dim=0)
    return logits, logits.log_softmax(dim=0), reference


def mean_gradient(estimator):
    """E_p[∇ k]: what many samples of p give on average when the estimator stands in the loss."""
    logits, log_p, reference = two_distributions()
    [gradient] = torch.autograd.grad((log_p.exp().detach() * estimator(log_p, reference)).sum(), logits)
    return gradient


def gradient_of_kl(forward):
    logits, log_p, reference = two_distributions()
    first, second = (reference, log_p) if forward else (log_p, reference)
    [gradient] = torch.autograd.grad((first.exp() * (first - second)).sum(), logits)
    return gradient


def test_k1_and_k3_estimate_the_divergence_without_bias_and_k2_almost():
    _, log_p, reference = two_distributions()
    kl = (log_p.exp() * (log_p - reference)).sum()
    for estimator in (k1, k3):
        torch.testing.assert_close((log_p.exp() * estimator(log_p, reference)).sum(), kl)
    nearby = (log_p.exp() + 1e-3 * (reference.exp() - log_p.exp())).log()
    small = (log_p.exp() * (log_p - nearby)).sum()
    assert (log_p.exp() * k2(log_p, nearby)).sum().item() == pytest.approx(small.item(), rel=1e-2)
    assert (k3(log_p, reference) >= 0).all()


def test_in_a_loss_k1_does_nothing_on_average():
    torch.testing.assert_close(mean_gradient(k1), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)


def test_in_a_loss_k2_draws_towards_the_reference_as_the_divergence_itself():
    torch.testing.assert_close(mean_gradient(k2), gradient_of_kl(forward=False))


def test_in_a_loss_k3_draws_as_the_divergence_the_other_way_round():
    torch.testing.assert_close(mean_gradient(k3), gradient_of_kl(forward=True))
    assert not torch.allclose(mean_gradient(k3), gradient_of_kl(forward=False), atol=0.01)

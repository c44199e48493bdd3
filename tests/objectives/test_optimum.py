"""The proof that signs, masks and KL are right: on a language whose answers can be listed, training ends at π*.

Two prompts with 15 answers each, of one to three tokens; rewards and the reference are drawn at random. Trainer,
batches and objectives are those of real training.
"""

from functools import partial

import numpy as np
import pytest
import torch

from languages import (
    ANSWERS,
    INPUTS_PXT,
    PROMPTS,
    TARGETS_PXT,
    Tabular,
    log_p_of_answers,
    log_p_of_tokens,
    optimum_of,
    some_rewards,
    total_variation,
)
from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import RolloutBatch, gae, group_advantages, grpo, ppo, token_rewards
from pellucid.objectives.preference import PairBatch, dpo, dpo_loss
from pellucid.training.optimizers import adamw
from pellucid.training.trainer import Trainer
from tiny import CPU_FLOAT32

BETA = 0.8
CLOSE = 0.02  # total variation
REWARDS_PX = some_rewards()
REFERENCE = Tabular(seed=7).requires_grad_(False)
REFERENCE_PX = log_p_of_answers(REFERENCE)
REFERENCE_PXT = log_p_of_tokens(REFERENCE, INPUTS_PXT, TARGETS_PXT)
OPTIMUM_PX = optimum_of(REFERENCE, REWARDS_PX, BETA)


def reference_copy():
    """The policy at the beginning: the reference itself, with values that expect nothing."""
    model = Tabular()
    model.load_state_dict(REFERENCE.state_dict())
    return model


def train(model, objective, get_batch, *, steps, lr=0.05, forward=None):
    """A learning rate that falls to zero averages the noise of the batches away."""
    optimizers = adamw(model, lr=lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    schedule = lambda step: 1 - step / steps  # noqa: E731
    get_part = lambda step, rows: get_batch(step).part(rows)  # noqa: E731
    trainer = Trainer(model, forward or model, optimizers, schedule, get_part, CPU_FLOAT32, objective=objective)
    return [trainer.update() for _ in range(steps)][-1]


def distance(model, optimum_PX=OPTIMUM_PX):
    with torch.no_grad():
        return total_variation(log_p_of_answers(model), optimum_PX).max().item()


def drawn(log_p_PX, shape, step):
    """Indices of answers to each prompt, drawn with their probabilities: (P, *shape)."""
    generator = torch.Generator().manual_seed(step)
    return torch.stack([torch.multinomial(p, np.prod(shape), True, generator=generator) for p in log_p_PX.exp()]).view(
        len(PROMPTS), *shape
    )


def taken(table_PX, answers_PN2):
    """The entries of a table for these answers; the rows of all prompts one after the other."""
    return torch.cat([of_prompt[indices] for of_prompt, indices in zip(table_PX, answers_PN2, strict=True)])


def drawn_pairs(step):
    """Two answers from the reference; which one is preferred is drawn as Bradley and Terry say."""
    answers_PN2 = drawn(REFERENCE_PX, (2560, 2), step)
    rewards_N2 = taken(REWARDS_PX, answers_PN2)
    p_N = torch.sigmoid(rewards_N2[:, 0] - rewards_N2[:, 1])
    turned_N = torch.rand(p_N.shape, generator=torch.Generator().manual_seed(step), dtype=p_N.dtype) > p_N
    answers_PN2[turned_N.view(len(PROMPTS), -1)] = answers_PN2[turned_N.view(len(PROMPTS), -1)].flip(-1)
    return PairBatch(*(taken(table, answers_PN2) for table in (INPUTS_PXT, TARGETS_PXT, REFERENCE_PX)))


class Rollouts:
    """Answers that the model gives now; new ones every `updates` updates. A row is a prompt with `n_answers`."""

    def __init__(self, model, judge, *, n_rows, n_answers, updates=1):
        self.model, self.judge, self.shape, self.updates = model, judge, (n_rows, n_answers), updates

    def __call__(self, step):
        if step % self.updates == 0:
            self.batch = self.judge(self.write(step))
        return self.batch

    @torch.no_grad()
    def write(self, step):
        old_PXT = log_p_of_tokens(self.model, INPUTS_PXT, TARGETS_PXT)
        answers = drawn(old_PXT.sum(dim=-1), self.shape, step)
        columns = [taken(table, answers) for table in (INPUTS_PXT, TARGETS_PXT, old_PXT, REFERENCE_PXT)]
        rewards_PG = taken(REWARDS_PX, answers)
        return RolloutBatch(*columns, torch.zeros_like(rewards_PG), rewards_PG, torch.zeros_like(columns[2]))


def rewards_of_tokens(batch):
    is_answer_PGT = batch.targets_PGT != IGNORE_INDEX
    return token_rewards(batch.rewards_PG, batch.old_PGT, batch.reference_PGT, is_answer_PGT, BETA), is_answer_PGT


def by_group(batch):
    """GRPO with the KL divergence in the rewards."""
    rewards_PGT, _ = rewards_of_tokens(batch)
    return batch._replace(advantages_PGT=group_advantages(rewards_PGT.sum(dim=-1))[..., None])


def by_group_without_kl(batch):
    """GRPO as it was published: the loss has the KL divergence, by k3."""
    return batch._replace(advantages_PGT=group_advantages(batch.rewards_PG)[..., None])


def by_values(model):
    def judge(batch):
        rewards_PGT, is_answer_PGT = rewards_of_tokens(batch)
        with torch.no_grad():
            _, values_NT = model.with_values(batch.inputs_PGT.flatten(0, 1))
        values_PGT = values_NT.view(rewards_PGT.shape)
        advantages_PGT, returns_PGT = gae(rewards_PGT, values_PGT, is_answer_PGT, discount=1.0, gae_lambda=0.95)
        return batch._replace(advantages_PGT=advantages_PGT, returns_PGT=returns_PGT)

    return judge


def test_the_reference_is_far_from_the_optimum():
    assert distance(REFERENCE) > 0.5


def test_dpo_on_drawn_pairs_ends_at_the_optimum():
    model = reference_copy()
    train(model, partial(dpo, beta=BETA), drawn_pairs, steps=150, lr=0.1)
    assert distance(model) < CLOSE


def test_dpo_on_all_pairs_has_no_gradient_at_the_optimum_and_only_there():
    """Each pair counts as often as it is drawn; then nothing is left to chance."""
    model = Tabular(seed=9)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=300, line_search_fn="strong_wolfe")
    weights_PXX = REFERENCE_PX.exp()[:, :, None] * REFERENCE_PX.exp()[:, None, :]
    weights_PXX = weights_PXX * torch.sigmoid(REWARDS_PX[:, :, None] - REWARDS_PX[:, None, :])

    def all_pairs(x_PX):
        return torch.stack(torch.broadcast_tensors(x_PX[:, :, None], x_PX[:, None, :]), dim=-1).flatten(0, 2)

    def closure():
        optimizer.zero_grad()
        log_p_PX = log_p_of_answers(model)
        answers_N2, references_N2 = (all_pairs(x_PX) for x_PX in (log_p_PX, REFERENCE_PX))
        loss = (weights_PXX.flatten() * dpo_loss(answers_N2, references_N2, BETA)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert distance(model) < 1e-3


@pytest.mark.parametrize("updates", [1, 3])
def test_grpo_with_the_kl_divergence_in_the_rewards_ends_at_the_optimum(updates):
    """There all answers to a prompt have the same penalised reward, and so no advantage, however it is scaled."""
    model = reference_copy()
    rollouts = Rollouts(model, by_group, n_rows=32, n_answers=8, updates=updates)
    last = train(model, partial(grpo, beta=0.0, clip=0.2), rollouts, steps=100, lr=0.1)
    assert distance(model) < CLOSE
    optimum = (OPTIMUM_PX.exp() * (OPTIMUM_PX - REFERENCE_PX)).sum(dim=1).mean().item()
    assert last.figures["kl"] == pytest.approx(optimum, abs=0.15), "k3 of 512 answers"


@pytest.mark.parametrize("updates", [1, 3])
def test_ppo_ends_at_the_optimum(updates):
    model = reference_copy()
    rollouts = Rollouts(model, by_values(model), n_rows=128, n_answers=1, updates=updates)
    train(model, partial(ppo, clip=0.2, value_weight=0.5), rollouts, steps=150, lr=0.1, forward=model.with_values)
    assert distance(model) < CLOSE
    log_z = torch.logsumexp(REFERENCE_PX + REWARDS_PX / BETA, dim=1)
    values = [model.with_values(torch.tensor([prompt]))[1].item() for prompt in PROMPTS]
    assert values == pytest.approx((BETA * log_z).tolist(), abs=0.1), "a prompt is worth β log Z"


def test_grpo_as_published_ends_elsewhere():
    """With k3 in the loss it ends where π = β σ π_ref / (μ - Q) for each token; σ: spread of the prompt's rewards.

    Q is the mean reward after the token, and μ the number that makes the probabilities sum to 1 (Grill et al. 2020 have
    the same form for search). The tails are heavier than those of π*, which falls off exponentially.
    """
    beta, model = 0.5, reference_copy()
    rollouts = Rollouts(model, by_group_without_kl, n_rows=1, n_answers=768)
    train(model, partial(grpo, beta=beta, clip=0.2), rollouts, steps=150, lr=0.1)
    with torch.no_grad():
        p_PX = log_p_of_answers(model).exp()
    mean_P1 = (p_PX * REWARDS_PX).sum(dim=1, keepdim=True)
    strengths = beta * (p_PX * (REWARDS_PX - mean_P1) ** 2).sum(dim=1).sqrt()
    for prompt, p_X, rewards_X, strength in zip(PROMPTS, p_PX, REWARDS_PX, strengths.tolist(), strict=True):
        found = dict(zip(ANSWERS, p_X.tolist(), strict=True))
        expected = rational_optimum(prompt, dict(zip(ANSWERS, rewards_X.tolist(), strict=True)), strength)
        assert sum(abs(found[answer] - expected[answer]) for answer in ANSWERS) / 2 < CLOSE
    same_strength_PX = (REFERENCE_PX + REWARDS_PX / strengths[:, None]).log_softmax(dim=1)
    assert distance(model, same_strength_PX) > 0.1


def rational_optimum(prompt, rewards, strength, begun=()):
    """p of each answer that goes on from `begun`: strength · π_ref / (μ - Q) at every token."""
    from scipy.optimize import brentq

    reference_V = REFERENCE(torch.tensor([[*prompt, *begun]]))[0, -1].softmax(dim=-1).numpy()
    ends = [(*begun, token) for token in range(3)]
    further = [
        {answer: 1.0} if answer in rewards else rational_optimum(prompt, rewards, strength, answer) for answer in ends
    ]
    q_V = np.array([sum(p * rewards[answer] for answer, p in answers.items()) for answers in further])
    low, high = q_V.max() + strength * 1e-9, q_V.max() + strength
    mu = brentq(lambda mu: (strength * reference_V / (mu - q_V)).sum() - 1, low, high)
    p_V = strength * reference_V / (mu - q_V)
    return {answer: p * q for p, answers in zip(p_V, further, strict=True) for answer, q in answers.items()}

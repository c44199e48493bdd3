"""Where the reward of an answer is credited, on a language whose answers can all be listed."""

import pytest
import torch

from languages import END, INPUTS_PXT, TARGETS_PXT, Tabular, log_p_of_answers, log_p_of_tokens, optimum_of
from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import RolloutBatch
from pellucid.post_training.credit import Parts, credit_by_values

REFERENCE = Tabular(seed=7).requires_grad_(False)
REFERENCE_PX = log_p_of_answers(REFERENCE)
REFERENCE_PXT = log_p_of_tokens(REFERENCE, INPUTS_PXT, TARGETS_PXT)


def halves_of(answers):
    """Half a point for an answer that ends, settled by its last token, and half for its prompt as its first token."""
    last_PG = (answers.targets_PGT != IGNORE_INDEX).sum(dim=-1) - 1
    ends_PG = answers.targets_PGT.gather(-1, last_PG[..., None])[..., 0] == END
    repeats_PG = answers.targets_PGT[..., 0] == answers.inputs_PGT[..., 0]
    settled_PG2 = torch.stack([last_PG, torch.zeros_like(last_PG)], dim=-1)
    return Parts(torch.stack([ends_PG, repeats_PG], dim=-1) / 2, settled_PG2)


@pytest.mark.parametrize(("reward_at", "less"), [("end", 0), ("settled", 1)])
def test_at_the_optimum_a_prompt_is_worth_beta_log_z_and_1_less_where_rewards_are_taken_off(reward_at, less):
    """Exactly, and whatever the answer: R - β log π*/π_ref is the same for all of them."""
    beta, answers = 0.3, RolloutBatch(INPUTS_PXT, TARGETS_PXT, *[REFERENCE_PXT] * 5)
    parts = halves_of(answers)
    rewards_PX = parts.rewards_PG2.sum(dim=-1)
    old_PXT = REFERENCE_PXT.clone()  # the return before the first token depends on the sum alone
    old_PXT[..., 0] += optimum_of(REFERENCE, rewards_PX, beta) - REFERENCE_PX
    credited = credit_by_values(
        answers._replace(old_PGT=old_PXT, rewards_PG=rewards_PX),
        parts,
        logits_and_values=Tabular().with_values,
        beta=beta,
        discount=1.0,
        gae_lambda=1.0,
        reward_at=reward_at,
    )
    log_z_P = torch.logsumexp(REFERENCE_PX + rewards_PX / beta, dim=1)
    expected_PX = (beta * log_z_P - less)[:, None].expand_as(rewards_PX)
    torch.testing.assert_close(credited.returns_PGT[..., 0], expected_PX, check_dtype=False)

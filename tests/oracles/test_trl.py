"""trl's own code for the losses of DPO and GRPO gives what ours gives, from the same log-probabilities.

Its losses are methods of its trainers. They are called with what they read of a trainer, and nothing else.
"""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import RolloutBatch, grpo, log_probabilities
from pellucid.objectives.preference import dpo_loss

trl = pytest.importorskip("trl")

N, T, V = 4, 7, 11


def random_numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fake_trainer(**settings):
    """Its metrics are kept and never read."""
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        reduce=lambda x, reduction: x,
        gather=lambda x: x,
        gather_for_metrics=lambda x: x,
    )
    metrics = {"train": defaultdict(list)}
    model = SimpleNamespace(training=True)
    return SimpleNamespace(accelerator=accelerator, model=model, aux_loss_enabled=False, _metrics=metrics, **settings)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_loss_of_grpo(beta):
    """Ours is its kind of mean `dr_grpo`, which divides by the longest possible answer besides: T tokens."""
    mask_NT = torch.arange(T) < torch.tensor([[7], [3], [5], [1]])
    logits_NTV = 0.5 * random_numbers(N, T, V, seed=0)
    targets_NT = random_numbers(N, T, V, seed=1).argmax(dim=-1).masked_fill(~mask_NT, IGNORE_INDEX)
    log_p_NT = log_probabilities(logits_NTV, targets_NT)
    old_NT, reference_NT = ((log_p_NT + 0.3 * random_numbers(N, T, seed=seed)) * mask_NT for seed in (2, 3))
    advantages_N = random_numbers(N, seed=4)
    trainer = fake_trainer(
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_p_NT, torch.zeros(N, T), None),
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None),
        loss_type="dr_grpo",
        importance_sampling_level="token",
        beta=beta,
        epsilon_low=0.2,
        epsilon_high=0.2,
        max_completion_length=T,
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
    )
    inputs = {
        "prompt_ids": targets_NT[:, :0],
        "prompt_mask": targets_NT[:, :0],
        "completion_ids": targets_NT,
        "completion_mask": mask_NT.long(),
        "advantages": advantages_N,
        "old_per_token_logps": old_NT,
        "ref_per_token_logps": reference_NT,
    }
    theirs = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    columns = (targets_NT.clamp(min=0), targets_NT, old_NT, reference_NT, advantages_N[:, None])
    batch = RolloutBatch(*(x.view(2, 2, -1) for x in columns), torch.zeros(2, 2), torch.zeros(2, 2, T))
    loss = grpo(lambda _: logits_NTV, batch, beta=beta, clip=0.2)
    torch.testing.assert_close(loss.sum / loss.count, theirs * T)


def test_the_loss_of_dpo():
    log_p_NT, reference_N = -random_numbers(2 * N, T, seed=0).abs(), -5 * random_numbers(2 * N, seed=1).abs()
    mask_NT = torch.ones(2 * N, T + 1, dtype=torch.long)
    trainer = fake_trainer(
        beta=0.1,
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        label_smoothing=0.0,
        f_divergence_type="reverse_kl",
        ld_alpha=None,
        use_weighting=False,
        precompute_ref_logps=True,
        _total_train_tokens=0,
        _tp_size=1,
    )
    figures_NT = torch.zeros(2 * N, T)
    outputs = SimpleNamespace(log_probs=log_p_NT, entropy=figures_NT, mean_logits=figures_NT, is_top1=figures_NT > 0)
    inputs = {
        "input_ids": torch.zeros_like(mask_NT),
        "attention_mask": mask_NT,
        "completion_mask": mask_NT,
        "ref_chosen_logps": reference_N[:N],
        "ref_rejected_logps": reference_N[N:],
    }
    theirs = trl.DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, return_outputs=False)
    ours = dpo_loss(*(torch.stack(each.chunk(2), dim=1) for each in (log_p_NT.sum(dim=1), reference_N)), beta=0.1)
    torch.testing.assert_close(ours.mean(), theirs)

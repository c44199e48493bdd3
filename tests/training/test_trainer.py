"""One update: equal to the equations, whatever way it is cut up."""

import math

import pytest
import torch

from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.errors import NonFiniteError
from pellucid.model.recompute import recompute_activations
from pellucid.objectives.next_token import choose_objective, cross_entropy
from profiled_memory import most_bytes_held
from tiny import CONTEXT_LENGTH, VOCAB_SIZE, decoder_config, random_batch, tiny_decoder, tiny_trainer

MOE = {"feed_forward": {"type": "moe", "n_experts": 4, "top_k": 2, "load_balance_weight": 0.5, "shared_experts": 1}}


def weights_after_one_update(decoder, **changes):
    trainer = tiny_trainer(decoder, **changes)
    update = trainer.update()
    return update, {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}


def test_the_objective_is_the_mean_of_minus_log_p_of_the_targets_that_count():
    batch = random_batch(3)
    logits = torch.randn(4, CONTEXT_LENGTH, VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
    naive = 0.0
    for b in range(4):
        for t in range(CONTEXT_LENGTH):
            if batch.targets_BT[b, t] != IGNORE_INDEX:
                exponentials = [math.exp(z) for z in logits[b, t].tolist()]
                naive -= math.log(exponentials[batch.targets_BT[b, t]] / sum(exponentials))
    assert cross_entropy(logits.flatten(0, 1), batch.targets_BT.flatten()).sum().item() == pytest.approx(
        naive, rel=1e-5
    )


@pytest.mark.parametrize("layers", [{}, MOE], ids=["dense", "experts"])
def test_accumulated_micro_batches_equal_the_one_large_batch_also_with_unequal_target_counts(layers):
    """Equation 16; with the load balance of experts too, since each row has its own (equation 41)."""
    micro_batches = [random_batch(i) for i in range(3)]
    counts = {int((batch.targets_BT != IGNORE_INDEX).sum()) for batch in micro_batches}
    assert len(counts) > 1
    large = Batch(*(torch.cat(tensors) for tensors in zip(*micro_batches, strict=True)))

    def after_one_update(**changes):
        decoder = tiny_decoder(**layers)
        objective = choose_objective(decoder_config(**layers), decoder)
        return weights_after_one_update(decoder, objective=objective, **changes)

    in_parts, weights_in_parts = after_one_update(get_batch=lambda i: micro_batches[i], gradient_accumulation_steps=3)
    at_once, weights_at_once = after_one_update(get_batch=lambda i: large)
    assert in_parts.loss == pytest.approx(at_once.loss, rel=1e-6)
    assert in_parts.gradient_norm == pytest.approx(at_once.gradient_norm, rel=1e-5)
    assert in_parts.tokens == at_once.tokens
    assert in_parts.figures.keys() == ({"balance_loss", "expert_load"} if layers else set())
    for name, figure in at_once.figures.items():
        torch.testing.assert_close(torch.tensor(in_parts.figures[name]), torch.tensor(figure))
    for name, weight in weights_at_once.items():
        torch.testing.assert_close(weights_in_parts[name], weight, rtol=1e-4, atol=1e-6)


WINDOW = {"attention": {"type": "sliding_window", "window": 3}, "qk_norm": True, "n_kv_heads": 1}


@pytest.mark.parametrize(
    "layers",
    [{"attention": "explicit"}, {"attention": "linear"}, WINDOW, MOE],
    ids=["explicit", "linear", "window", "experts"],
)
def test_recomputing_activations_changes_no_gradient_and_keeps_less(layers):
    """Equation 17: of attention, less than all; of whole blocks, less than that."""

    def gradients_and_saved_numbers(what):
        decoder = tiny_decoder(dropout=0.2, n_layers=4, **layers)
        objective = choose_objective(decoder_config(**layers), decoder)
        recompute_activations(decoder.blocks, what)
        torch.manual_seed(1)
        saved = 0

        def count(tensor):
            nonlocal saved
            saved += tensor.numel()
            return tensor

        batch = random_batch(0)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = objective(decoder, batch)
        kept = saved
        (loss.sum + loss.penalty).backward()
        return {name: parameter.grad for name, parameter in decoder.named_parameters()}, kept

    plain, all_kept = gradients_and_saved_numbers("none")
    again_attention, kept_beside_attention = gradients_and_saved_numbers("attention")
    again_blocks, kept_between_blocks = gradients_and_saved_numbers("block")
    again_cheap, _ = gradients_and_saved_numbers("cheap")  # what it keeps, no hook sees
    for recomputed in (again_attention, again_cheap, again_blocks):
        assert all(torch.equal(plain[name], recomputed[name]) for name in plain)
    assert kept_between_blocks < all_kept / 3
    assert kept_between_blocks < kept_beside_attention < all_kept


def test_the_memory_of_an_update_does_not_grow_with_the_micro_batches_that_it_sums():
    """Equation 16's other half: the largest amount held at one moment, beyond the token ids of all micro-batches."""

    def peak_bytes(n_micro_batches):
        decoder = tiny_decoder(n_layers=4)
        recompute_activations(decoder.blocks)
        trainer = tiny_trainer(decoder, gradient_accumulation_steps=n_micro_batches)
        trainer.update()  # gradients and moments are there afterwards
        return most_bytes_held(trainer.update)

    # From the second micro-batch on, the gradient is held besides the activations.
    two, six = peak_bytes(2), peak_bytes(6)
    token_ids = 4 * 3 * 4 * (CONTEXT_LENGTH + 1) * 8  # of four more: drawn, and copied to targets; int64
    assert two > 4 * token_ids
    assert six <= two + token_ids


def test_a_long_gradient_is_clipped_to_the_maximum_and_its_own_norm_reported():
    decoder = tiny_decoder()
    trainer = tiny_trainer(decoder, max_gradient_norm=0.01)
    seen = {}
    optimizer = trainer.optimizers[0]
    real_step = optimizer.step

    def spy_on_the_gradient():
        seen["norm"] = torch.cat([p.grad.flatten() for p in decoder.parameters()]).norm().item()
        real_step()

    optimizer.step = spy_on_the_gradient
    update = trainer.update()
    assert update.gradient_norm > 0.1
    assert seen["norm"] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_nothing_is_updated_when_the_loss_or_a_gradient_is_not_finite(poison):
    decoder = tiny_decoder()
    before = {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}

    def forward(tokens):
        logits = decoder(tokens)
        if poison == "loss":
            return logits * math.nan
        logits.register_hook(lambda gradient: gradient * math.inf)
        return logits

    with pytest.raises(NonFiniteError, match=rf"step 1: the {poison}( of micro-batch 1 of 1)? is not finite"):
        tiny_trainer(decoder, forward=forward).update()
    assert all(torch.equal(before[name], parameter) for name, parameter in decoder.named_parameters())


def test_the_learning_rate_follows_the_schedule_and_zero_moves_nothing():
    decoder = tiny_decoder()
    before = {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}
    trainer = tiny_trainer(decoder, schedule=lambda step: [0.0, 0.5, 1.0][step])
    assert trainer.update().learning_rate == 0.0
    assert all(torch.equal(before[name], parameter) for name, parameter in decoder.named_parameters())
    assert trainer.update().learning_rate == pytest.approx(0.5e-2)
    assert trainer.update().learning_rate == pytest.approx(1e-2)
    assert not any(torch.equal(before[name], parameter) for name, parameter in decoder.named_parameters())


def test_a_decoder_overfits_one_batch():
    batch = random_batch(0)
    batch.inputs_BT[:, 0] = torch.arange(4)  # rows that begin alike and go on differently nobody can foresee
    decoder = tiny_decoder(d_model=32)
    trainer = tiny_trainer(decoder, get_batch=lambda i: batch)
    losses = [trainer.update().loss for _ in range(200)]
    assert losses[0] > 2.0
    assert losses[-1] < 0.01


def test_what_is_reported_as_the_loss_is_the_cross_entropy_alone():
    batch = random_batch(0)
    without, with_penalty = (
        tiny_trainer(
            decoder := tiny_decoder(**MOE),
            get_batch=lambda i: batch,
            objective=choose_objective(decoder_config(feed_forward={**MOE["feed_forward"], **changes}), decoder),
        ).update()
        for changes in ({"load_balance_weight": 0.0}, {})
    )
    assert without.loss == with_penalty.loss
    assert without.figures == with_penalty.figures
    assert without.gradient_norm != with_penalty.gradient_norm


def test_minimising_the_balance_loss_undoes_a_router_that_asks_the_same_two_for_everything():
    """With four experts and two choices the balance loss is 2 where all are as likely, and at most 4."""

    def after_training(weight):
        moe = {"feed_forward": {"type": "moe", "n_experts": 4, "top_k": 2, "load_balance_weight": weight}}
        decoder = tiny_decoder(**moe, bias=True)
        with torch.no_grad():
            for block in decoder.blocks:
                block.feed_forward.norm.bias.fill_(1.0)
                block.feed_forward.sublayer.router.weight[:2] += 0.1
        trainer = tiny_trainer(decoder, objective=choose_objective(decoder_config(**moe), decoder))
        first, *_, last = [trainer.update().figures for _ in range(30)]
        assert first["expert_load"] == [[0.5, 0.5, 0.0, 0.0]] * 2
        return last["balance_loss"]

    assert after_training(0.0) > 3.3
    assert after_training(1.0) < 2.2

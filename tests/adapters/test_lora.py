"""LoRA: it begins as the base, only A and B learn, and merging gives back what it took."""

import copy
from math import sqrt

import pytest
import torch
from torch import nn

from model_axes import VOCAB_SIZE, build_away_from_zero, covering_combinations, float64, tiny_config
from pellucid.adapters.lora import LoRALinear, add_lora, merge, merged, unmerge
from pellucid.adapters.quantized import QuantizedLinear, quantize
from pellucid.config.model import BigramConfig
from pellucid.errors import ConfigError
from pellucid.generation.single_token import SingleTokenDecoder
from pellucid.model.build import build_model
from pellucid.training.optimizers import adamw, muon, sgd
from tiny import random_batch, tiny_decoder, tiny_trainer

TOKENS_BT = torch.randint(VOCAB_SIZE, (2, 8), generator=torch.Generator().manual_seed(0))


def adapted(rank=2, alpha=4.0, targets=None, seed=0, to=None, **choices):
    """A tiny decoder with an adapter whose A and B are both away from zero."""
    model = build_away_from_zero(tiny_config(**choices))
    if to is not None:
        quantize(model, to)
    add_lora(model, rank, alpha, targets)
    move(model, seed)
    return model


def move(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.requires_grad:
                tensor += 0.3 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)


def test_a_layer_adds_what_a_and_b_make_of_its_input():
    with float64():
        base = nn.Linear(3, 2)
        layer = LoRALinear(base, rank=2, alpha=6.0)
        move(layer)
        x = torch.randn(3)
        expected = [
            sum(base.weight[o, i] * x[i] for i in range(3))
            + base.bias[o]
            + 6.0 / 2 * sum(layer.B_OR[o, r] * layer.A_RI[r, i] * x[i] for r in range(2) for i in range(3))
            for o in range(2)
        ]
        torch.testing.assert_close(layer(x), torch.stack(expected))


def test_a_is_drawn_within_one_over_the_root_of_its_width_and_b_is_zero():
    layer = LoRALinear(nn.Linear(64, 32), rank=8, alpha=8.0)
    assert layer.A_RI.shape == (8, 64)
    assert layer.B_OR.shape == (32, 8)
    assert 0.9 / sqrt(64) < layer.A_RI.abs().max() <= 1 / sqrt(64)
    assert torch.equal(layer.B_OR, torch.zeros(32, 8))


@pytest.mark.parametrize("to", [None, "int8", "nf4", "nf4-double"])
def test_before_the_first_step_the_logits_are_those_of_the_base_to_the_bit(to):
    model = build_away_from_zero(tiny_config())
    if to is not None:
        quantize(model, to)
    expected = model(TOKENS_BT)
    add_lora(model, rank=2, alpha=4.0)
    assert torch.equal(model(TOKENS_BT), expected)


@pytest.mark.parametrize("to", [None, "int8", "nf4", "nf4-double"])
def test_at_the_first_step_b_alone_has_a_gradient_and_the_base_never_has(to):
    model = build_away_from_zero(tiny_config(bias=True))
    if to is not None:
        quantize(model, to)
    add_lora(model, rank=2, alpha=4.0)
    model(TOKENS_BT).square().sum().backward()
    for name, parameter in model.named_parameters():
        if name.endswith("A_RI"):
            assert torch.equal(parameter.grad, torch.zeros_like(parameter))
        elif name.endswith("B_OR"):
            assert parameter.grad.abs().max() > 0
        else:
            assert parameter.grad is None
    move(model)
    model(TOKENS_BT).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters() if p.requires_grad)


def test_the_trained_parameters_are_rank_times_in_plus_out():
    model = adapted(rank=3, targets=["W_Q", "W_1"], bias=True)
    d_model, d_ff, n_layers = 8, 12, 2
    n_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert n_trained == n_layers * 3 * ((d_model + d_model) + (d_model + d_ff))


def test_the_unembedding_and_the_routers_are_no_targets():
    for tied in (True, False):
        experts = {"type": "moe", "n_experts": 3, "top_k": 1}
        model = adapted(tied_embeddings=tied, feed_forward=experts)
        names = {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, LoRALinear)}
        assert names == {"W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"}
        assert not any(p.requires_grad for p in model.embeddings.parameters())


@pytest.mark.parametrize("to", [None, "nf4"])
def test_merged_and_unmerged_compute_the_same_over_all_axes(to):
    for config in covering_combinations():
        with float64(), torch.no_grad():
            model = build_away_from_zero(config).eval()
            if to is not None:
                quantize(model, to)
            add_lora(model, rank=2, alpha=4.0)
            move(model)
            apart = model(TOKENS_BT)
            with merged(model):
                assert not any(isinstance(module, LoRALinear | QuantizedLinear) for module in model.modules())
                torch.testing.assert_close(model(TOKENS_BT), apart, atol=1e-9, rtol=1e-9)


def test_in_single_precision_too_merging_changes_no_logit_by_more_than_a_millionth_of_the_largest():
    model = adapted()
    apart = model(TOKENS_BT)
    merge(model)
    assert (model(TOKENS_BT) - apart).abs().max() < 1e-6 * apart.abs().max()


def test_to_unmerge_gives_the_bytes_of_the_base_back():
    model = build_away_from_zero(tiny_config(bias=True))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    name = "blocks.0.attention.sublayer.W_Q.weight"
    add_lora(model, rank=2, alpha=4.0)
    move(model)
    for _ in range(3):
        layers = merge(model)
        assert not torch.equal(model.state_dict()[name], before[name])
        unmerge(model, layers)
    after = {name.replace(".base.", "."): parameter for name, parameter in model.named_parameters()}
    assert all(torch.equal(after[each], before[each]) for each in before)


def test_an_error_while_merged_leaves_the_adapter_in_place():
    model = adapted()
    with pytest.raises(RuntimeError, match="stop"), merged(model):
        raise RuntimeError("stop")
    assert sum(isinstance(module, LoRALinear) for module in model.modules()) == 2 * 6


@pytest.mark.parametrize(
    ("rank", "targets", "message"),
    [
        (0, None, "adapter.rank: 0 is not from 1 to 8, the shorter side of W_Q; choose a rank in between"),
        (9, ["W_1"], "adapter.rank: 9 is not from 1 to 8, the shorter side of W_1"),
        (2, ["W_Q", "W_X"], "no linear layer inside a block is named 'W_X'; choose among W_1, W_2, W_K, W_O, W_Q, W_V"),
        (2, ["embedding_VD"], "no linear layer inside a block is named 'embedding_VD'"),
        (2, [], "adapter.targets: no linear layer to adapt; name one"),
    ],
)
def test_a_rank_or_a_target_that_makes_no_sense_is_one_line(rank, targets, message):
    model = build_away_from_zero(tiny_config())
    with pytest.raises(ConfigError, match=message):
        add_lora(model, rank, 4.0, targets)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_model_without_linear_layers_in_blocks_takes_no_adapter():
    with pytest.raises(ConfigError, match="no linear layer to adapt; name one, or train without"):
        add_lora(build_model(BigramConfig(type="bigram", context_length=8), 5), 1, 1.0)


def test_the_lean_decoder_computes_layers_with_an_adapter_as_they_are():
    with float64(), torch.no_grad():
        model = adapted(bias=True).eval()
        cache, single_token, expected_BTV = model.new_state(2), SingleTokenDecoder(model), model(TOKENS_BT)
        for t in range(8):
            torch.testing.assert_close(single_token(TOKENS_BT[:, t], cache), expected_BTV[:, t])


MUON = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.0, "adamw_lr": 0.02, "adamw_betas": (0.9, 0.95)}
OPTIMIZERS = {
    "adamw": lambda model: adamw(model, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0),
    "muon": lambda model: muon(model, **MUON, adamw_eps=1e-8, dtype=torch.float32),
    "sgd": lambda model: sgd(model, lr=0.5, momentum=0.9, weight_decay=0.0),
}


@pytest.mark.parametrize("to", [None, "nf4-double"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_a_and_b_and_leaves_the_base_as_it_is(name, to):
    decoder = tiny_decoder()
    if to is not None:
        quantize(decoder, to)
    add_lora(decoder, rank=4, alpha=8.0)
    before = copy.deepcopy(decoder.state_dict())
    optimizers = OPTIMIZERS[name](decoder)
    chosen = [p for each in optimizers for group in each.param_groups for p in group["params"]]
    assert {id(p) for p in chosen} == {id(p) for p in decoder.parameters() if p.requires_grad}
    trainer = tiny_trainer(decoder, get_batch=lambda i: random_batch(0), optimizers=optimizers)
    losses = [trainer.update().loss for _ in range(10)]
    assert losses[-1] < losses[0] - 0.02
    for key, tensor in decoder.state_dict().items():
        assert torch.equal(tensor, before[key]) == (not key.endswith(("A_RI", "B_OR"))), key

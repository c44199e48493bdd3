"""Optimizers: the equations, and which parameter goes where."""

import pytest
import torch
from torch import nn

from pellucid.config.model import BigramConfig, RecurrentConfig
from pellucid.config.training import AdamWConfig, MuonConfig, SGDConfig
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision
from pellucid.training.optimizers import adamw, build_optimizers, muon, set_learning_rate, sgd
from tiny import tiny_decoder

FLOAT32 = Precision(torch.device("cpu"), torch.float32)
ADAMW = {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.3}
MUON = {
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 0.1,
    "adamw_lr": 0.02,
    "adamw_betas": (0.9, 0.95),
    "adamw_eps": 1e-8,
    "dtype": torch.bfloat16,
}


def test_adamw_is_equation_15_with_the_decay_outside_the_statistics_and_on_matrices_alone():
    model = nn.Linear(3, 2).double()
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(5, 2, 4, generator=generator, dtype=torch.float64)
    naive = {"weight": model.weight.tolist(), "bias": [[b] for b in model.bias.tolist()]}
    moments = {name: [[(0.0, 0.0)] * len(row) for row in rows] for name, rows in naive.items()}
    (optimizer,) = adamw(model, **ADAMW)
    beta1, beta2 = ADAMW["betas"]
    for step, gradient in enumerate(gradients, start=1):
        model.weight.grad, model.bias.grad = gradient[:, :3].contiguous(), gradient[:, 3].contiguous()
        optimizer.step()
        for name, decay, offset in [("weight", ADAMW["weight_decay"], 0), ("bias", 0.0, 3)]:
            for i, row in enumerate(naive[name]):
                for j, theta in enumerate(row):
                    g = gradient[i, j + offset].item()
                    m, v = moments[name][i][j]
                    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
                    moments[name][i][j] = (m, v)
                    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
                    row[j] = theta - ADAMW["lr"] * (decay * theta + m_hat / (v_hat**0.5 + ADAMW["eps"]))
    torch.testing.assert_close(model.weight.detach(), torch.tensor(naive["weight"], dtype=torch.float64))
    torch.testing.assert_close(model.bias.detach(), torch.tensor([b for (b,) in naive["bias"]], dtype=torch.float64))


def test_embeddings_can_have_a_rate_of_their_own():
    decoder, other = tiny_decoder(), tiny_decoder()
    other.load_state_dict(decoder.state_dict())
    for model, rates in ((decoder, {"lr": 0.1, "embedding_lr": 0.02}), (other, {"lr": 0.1})):
        optimizers = adamw(model, **{**ADAMW, "weight_decay": 0.0, **rates})
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        set_learning_rate(optimizers, 0.5)
        for optimizer in optimizers:
            optimizer.step()
    assert (
        sorted(group["lr"] for each in adamw(decoder, **ADAMW, embedding_lr=0.02) for group in each.param_groups)[0]
        == 0.02
    )
    for (name, theirs), ours in zip(other.named_parameters(), decoder.parameters(), strict=True):
        assert torch.equal(theirs, ours) == (not name.startswith("embeddings.")), name


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_sgd_is_equation_47_with_the_decay_in_the_gradient_and_on_matrices_alone(momentum):
    model = nn.Linear(3, 2).double()
    generator = torch.Generator().manual_seed(0)
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    sums = [torch.zeros_like(theta) for theta in expected]
    (optimizer,) = sgd(model, lr=0.1, momentum=momentum, weight_decay=0.3)
    for _ in range(5):
        for i, (parameter, decay) in enumerate(zip(model.parameters(), (0.3, 0.0), strict=True)):
            g = parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            sums[i] = momentum * sums[i] + g + decay * expected[i]
            expected[i] = expected[i] - 0.1 * sums[i]
        optimizer.step()
    for parameter, theta in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), theta)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_exactly_one_optimizer_and_muon_gets_the_matrices_of_the_blocks(tied):
    decoder = tiny_decoder(tied_embeddings=tied, bias=True, position={"type": "learned"}, activation="swiglu")
    names = {parameter: name for name, parameter in decoder.named_parameters()}
    by_optimizer = [
        sorted(names[parameter] for group in optimizer.param_groups for parameter in group["params"])
        for optimizer in muon(decoder, **MUON)
    ]
    assert sorted(by_optimizer[0] + by_optimizer[1]) == sorted(names.values())
    assert by_optimizer[0] == sorted(n for p, n in names.items() if n.startswith("blocks.") and p.ndim == 2)
    assert len(by_optimizer[0]) == 2 * (4 + 3)


def test_muon_gets_the_matrices_of_every_expert_and_adamw_the_router():
    decoder = tiny_decoder(feed_forward={"type": "moe", "n_experts": 4, "top_k": 2, "shared_experts": 1})
    names = {parameter: name for name, parameter in decoder.named_parameters()}
    of_muon, of_adamw = (
        {names[parameter] for group in optimizer.param_groups for parameter in group["params"]}
        for optimizer in muon(decoder, **MUON)
    )
    assert of_muon | of_adamw == set(names.values())
    for layer in (f"blocks.{i}.feed_forward.sublayer" for i in range(2)):
        experts = [f"{layer}.experts.{i}" for i in range(4)] + [f"{layer}.shared.0"]
        assert {f"{expert}.{matrix}.weight" for expert in experts for matrix in ("W_1", "W_2")} <= of_muon
        assert f"{layer}.router.weight" in of_adamw
        assert f"{layer}.router.weight" not in of_muon


def test_muon_gets_the_matrices_of_recurrent_layers_and_adamw_their_embedding():
    lstm = build_model(RecurrentConfig(type="lstm", context_length=8, d_model=4, n_layers=2), 11)
    names = {parameter: name for name, parameter in lstm.named_parameters()}
    of_muon, of_adamw = (
        {names[parameter] for group in optimizer.param_groups for parameter in group["params"]}
        for optimizer in muon(lstm, **MUON)
    )
    assert of_muon == {f"layers.weight_{which}_l{layer}" for which in ("ih", "hh") for layer in (0, 1)}
    assert of_muon | of_adamw == set(names.values())


def test_a_muon_step_moves_all_directions_of_a_matrix_equally_far():
    decoder = tiny_decoder()
    for parameter in decoder.parameters():
        parameter.grad = torch.ones_like(parameter)
        if parameter.ndim == 2:  # a gradient that goes 5 times as far in some directions as in others
            left, _, right = torch.linalg.svd(torch.randn(parameter.shape), full_matrices=False)
            parameter.grad = left @ torch.diag(torch.linspace(0.5, 2.5, len(right))) @ right
    before = {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}
    matrices, others = muon(decoder, **{**MUON, "weight_decay": 0.0})
    matrices.step()
    for name, parameter in decoder.named_parameters():
        if any(parameter is p for group in matrices.param_groups for p in group["params"]):
            singular_values = torch.linalg.svdvals((parameter.detach() - before[name]).double())
            # Five Newton-Schulz steps bring the singular values near each other, not quite together.
            assert singular_values.max() / singular_values.min() < 2
        else:
            assert torch.equal(parameter, before[name])
    others.step()
    assert not torch.equal(decoder.embeddings.embedding_VD, before["embeddings.embedding_VD"])


def test_the_schedule_scales_each_optimizers_own_peak():
    decoder = tiny_decoder()
    optimizers = muon(decoder, **MUON)
    for factor in (0.5, 1.0, 0.25):
        set_learning_rate(optimizers, factor)
        rates = [{group["lr"] for group in optimizer.param_groups} for optimizer in optimizers]
        assert rates == [{0.1 * factor}, {0.02 * factor}]


def test_a_model_without_matrices_in_blocks_leaves_nothing_for_muon_and_adamw_takes_it_all():
    bigram = build_model(BigramConfig(type="bigram", context_length=8), 5)
    (optimizer,) = muon(bigram, **MUON)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["params"] for group in optimizer.param_groups] == [[bigram.logits_VV]]
    assert optimizer.param_groups[0]["lr"] == MUON["adamw_lr"]


def test_l1_finds_the_lasso_and_leaves_vectors_alone():
    """Of |W - A|^2 / 2 + l1 |W|, the smallest W is A with each number l1 nearer to 0, and 0 where it is smaller."""
    model = nn.Linear(4, 3).double()
    A_OI, b_O = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.ones(3) / 2
    (optimizer,) = build_optimizers(SGDConfig(type="sgd", lr=0.1, momentum=0, l1=0.6), model, FLOAT32)
    for _ in range(300):
        model.weight.grad, model.bias.grad = model.weight.detach() - A_OI, model.bias.detach() - b_O
        optimizer.step()
    torch.testing.assert_close(model.weight.detach(), nn.functional.softshrink(A_OI, 0.6))
    torch.testing.assert_close(model.bias.detach(), b_O.double())
    assert 0 < (model.weight == 0).sum() < 12


@pytest.mark.parametrize("config", [AdamWConfig(type="adamw"), MuonConfig(type="muon")], ids=lambda config: config.type)
def test_l1_is_apart_from_the_statistics_of_an_optimizer(config):
    decoder, other = tiny_decoder(), tiny_decoder()
    other.load_state_dict(decoder.state_dict())
    for model, l1 in ((decoder, 0.0), (other, 0.5)):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for optimizer in build_optimizers(config.model_copy(update={"l1": l1}), model, FLOAT32):
            optimizer.step()
            rates = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
            for plain, pulled in zip(decoder.parameters(), other.parameters(), strict=True):
                if pulled in rates and l1:
                    pull = rates[pulled] * l1 if pulled.ndim == 2 else 0.0
                    torch.testing.assert_close(pulled.detach(), plain.detach() - plain.detach().clamp(-pull, pull))

"""A mixture of experts: its equation, its gradients, and what the other parts of the model make of it."""

import numpy as np
import pytest
import torch

from model.model_axes import AXES, VOCAB_SIZE, build_away_from_zero, float64, tiny_config
from model.test_decoder import influence
from pellucid.model.build import build_feed_forward, build_model
from reference import experts as reference

N_EXPERTS, TOP_K = 4, 2


def moe(**changes):
    return {"type": "moe", "n_experts": N_EXPERTS, "top_k": TOP_K, **changes}


def layer(activation="gelu", **changes):
    """Experts that differ, and a router that prefers some of them."""
    torch.manual_seed(0)
    with float64():
        experts = build_feed_forward(tiny_config(feed_forward=moe(**changes), activation=activation, bias=True))
        with torch.no_grad():
            for parameter in experts.parameters():
                parameter.copy_(torch.randn_like(parameter))
    return experts


def random_x(*shape):
    return torch.randn(*shape, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def as_loop(expert):
    return lambda vector: expert(torch.from_numpy(vector)[None])[0].detach().numpy()


@pytest.mark.parametrize("activation", AXES["activation"])
@pytest.mark.parametrize("n_shared", [0, 2])
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_a_mixture_of_experts_is_the_loop_of_equation_40(activation, n_shared, top_k):
    experts, x_BTD = layer(activation, shared_experts=n_shared, top_k=top_k), random_x(2, 5)
    expected = reference.mixture(
        x_BTD.flatten(0, 1).numpy(),
        experts.router.weight.detach().numpy(),
        [as_loop(expert) for expert in experts.experts],
        [as_loop(expert) for expert in experts.shared],
        top_k,
    )
    np.testing.assert_allclose(experts(x_BTD).flatten(0, 1).detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", AXES["activation"])
def test_identical_experts_are_one_feed_forward_layer(activation):
    experts, x_BTD = layer(activation), random_x(2, 5)
    for expert in experts.experts:
        expert.load_state_dict(experts.experts[0].state_dict())
    torch.testing.assert_close(experts(x_BTD), experts.experts[0](x_BTD))


def test_asking_all_experts_is_the_dense_mixture():
    experts, x_BTD = layer(top_k=N_EXPERTS), random_x(2, 5)
    answers_BTDE = torch.stack([expert(x_BTD) for expert in experts.experts], dim=-1)
    weights_BTE = (x_BTD @ experts.router.weight.T).softmax(dim=-1)
    torch.testing.assert_close(experts(x_BTD), (answers_BTDE @ weights_BTE[..., None])[..., 0])


def test_gradients_reach_the_router_and_every_expert_that_was_asked_and_no_other():
    experts = layer(n_experts=8)
    experts(random_x(1, 2)).square().sum().backward()
    with torch.no_grad():
        asked = set(experts.router(random_x(1, 2)).topk(TOP_K).indices.flatten().tolist())
    assert 2 <= len(asked) < 8
    assert experts.router.weight.grad.any()
    for i, expert in enumerate(experts.experts):
        for name, parameter in expert.named_parameters():
            assert parameter.grad.any() == (i in asked), (i, name)


def test_with_one_choice_the_share_is_one_and_the_router_learns_from_the_balance_alone():
    """The renormalised share of a single choice does not depend on its probability."""
    experts = layer(top_k=1)
    experts(random_x(1, 6)).square().sum().backward()
    torch.testing.assert_close(experts.router.weight.grad, torch.zeros_like(experts.router.weight), rtol=0, atol=1e-12)


def test_no_expert_is_ever_full():
    """All tokens may ask the same experts: each gets the answer that it would get alone."""
    experts, x_BTD = layer(), random_x(1, 1).expand(1, 50, 8)
    torch.testing.assert_close(experts(x_BTD), experts(x_BTD[:, :1]).expand(1, 50, 8))


@pytest.mark.parametrize("n_shared", [0, 1])
def test_no_position_of_a_model_with_experts_sees_the_future(n_shared):
    with float64():
        model = build_away_from_zero(tiny_config(feed_forward=moe(shared_experts=n_shared)))
        influence_TS = influence(model, length=6)
    assert not influence_TS.triu(diagonal=1).any()
    assert influence_TS[torch.tril_indices(6, 6).unbind()].all()


@pytest.mark.parametrize("chunks", [[1] * 8, [3, 1, 4]])
def test_piece_by_piece_is_all_at_once(chunks):
    tokens_BT = torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(0))
    with float64(), torch.no_grad():
        model = build_away_from_zero(tiny_config(feed_forward=moe(shared_experts=1)))
        state = model.new_state(3)
        pieces = [model(chunk_BT, state) for chunk_BT in tokens_BT.split(chunks, dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens_BT), rtol=0, atol=1e-11)


def test_in_bfloat16_the_router_decides_in_float32():
    model = build_model(tiny_config(feed_forward=moe()), VOCAB_SIZE)
    with torch.autocast("cpu", torch.bfloat16), model.sparse_layers()[-1].probabilities() as heard:
        logits_BTV = model(torch.zeros(2, 8, dtype=torch.long))
    assert [p_BTE.dtype for p_BTE in heard] == [torch.float32]
    assert logits_BTV.dtype == torch.bfloat16


def test_a_router_is_heard_inside_alone_and_nothing_changes():
    model = build_away_from_zero(tiny_config(feed_forward=moe()))
    tokens_BT = torch.zeros(2, 8, dtype=torch.long)
    unheard_BTV = model(tokens_BT)
    blocks = [block.feed_forward.sublayer for block in model.blocks]
    assert model.sparse_layers() == blocks
    with blocks[1].probabilities() as heard:
        assert torch.equal(model(tokens_BT), unheard_BTV)
    model(tokens_BT)
    assert [p_BTE.shape for p_BTE in heard] == [(2, 8, N_EXPERTS)]


def test_experts_start_apart_and_all_about_equally_likely():
    torch.manual_seed(0)
    model = build_model(tiny_config(feed_forward=moe(), d_model=64, d_ff=256), VOCAB_SIZE)
    for experts in model.sparse_layers():
        assert experts.router.weight.std().item() == pytest.approx(0.02, rel=0.15)
        first, second = experts.experts[0], experts.experts[1]
        assert not torch.equal(first.W_1.weight, second.W_1.weight)
        assert second.W_2.weight.std().item() == pytest.approx((2 / (5 * 64)) ** 0.5 / 2, rel=0.05)


def test_zeroed_projections_silence_every_expert():
    model = build_model(tiny_config(feed_forward=moe(shared_experts=1), zero_init_projections=True), VOCAB_SIZE)
    for experts in model.sparse_layers():
        assert not experts(torch.randn(2, 3, 8)).any()


def test_a_config_without_the_section_builds_the_dense_layer_as_before():
    names = [
        set(dict(build_model(tiny_config(**choice), VOCAB_SIZE).named_parameters()))
        for choice in ({}, {"feed_forward": {"type": "dense"}})
    ]
    assert names[0] == names[1]
    assert "blocks.0.feed_forward.sublayer.W_1.weight" in names[0]

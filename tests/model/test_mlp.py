"""The neural n-gram model, against loops, and as a language model like any other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64
from pellucid.config.model import MLPConfig
from pellucid.cost.counts import count_cost
from pellucid.model.build import build_model
from reference.mlp import mlp as loops

CONFIGS = st.builds(
    MLPConfig,
    type=st.just("mlp"),
    context_length=st.just(8),
    window=st.integers(1, 4),
    d_model=st.just(3),
    d_ff=st.sampled_from([None, 5]),
    activation=st.sampled_from(["tanh", "relu"]),
    tied_embeddings=st.booleans(),
)


def tiny_mlp(window=3, **changes):
    settings = {"type": "mlp", "context_length": 8, "window": window, "d_model": 4, "d_ff": 6, **changes}
    with float64():
        return build_away_from_zero(MLPConfig.model_validate(settings))


@given(config=CONFIGS, tokens=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_the_mlp_is_the_loops(config, tokens):
    """Equation 34 in float64."""
    with float64():
        model = build_away_from_zero(config)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    logits_TV = model(torch.tensor([tokens]))[0].detach().numpy()
    np.testing.assert_allclose(logits_TV, loops(tokens, config, weights), rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("chunks", [[8], [1] * 8, [3, 1, 4]])
def test_piece_by_piece_gives_the_logits_of_all_at_once(window, chunks):
    model, tokens_BT = tiny_mlp(window), torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(0))
    state = model.new_state(3)
    pieces = [model(chunk_BT, state) for chunk_BT in tokens_BT.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens_BT), rtol=0, atol=1e-12)
    assert state.length == 8


def test_reordered_sequences_go_on_from_their_own_tokens():
    model, tokens_BT = tiny_mlp(), torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(0))
    rows, state = torch.tensor([2, 0, 0]), model.new_state(3)
    model(tokens_BT[:, :5], state)
    state.reorder(rows)
    logits_BTV = model(tokens_BT[rows, 5:], state)
    torch.testing.assert_close(logits_BTV, model(tokens_BT)[rows, 5:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [1, 3])
def test_a_position_depends_on_the_tokens_of_its_window_and_on_no_other(window):
    """By gradients: d logits_t / d embedding_s is zero unless t - window < s <= t."""
    model, T = tiny_mlp(window, tied_embeddings=False), 6
    table_VD = model.embeddings.embedding_VD
    tokens_T = torch.randperm(VOCAB_SIZE)[:T]  # all different: each row of the table stands for one position
    sums_T = (model(tokens_T[None])[0] @ torch.randn(VOCAB_SIZE, dtype=torch.float64)).unbind()
    gradients_TTD = [torch.autograd.grad(total, table_VD, retain_graph=True)[0][tokens_T] for total in sums_T]
    sees_TT = torch.stack(gradients_TTD).abs().amax(dim=-1) > 0
    assert torch.equal(sees_TT, torch.ones(T, T).tril().triu(1 - window).bool())


def test_the_first_weights_make_sums_of_about_1():
    torch.manual_seed(0)
    model = build_model(MLPConfig(type="mlp", context_length=8, window=8, d_model=64, d_ff=256), vocab_size=500)
    [layer] = model.blocks
    x_NW = model.embeddings.embedding_VD[torch.randint(500, (400, 8))].flatten(1)
    assert layer.W_1(x_NW).std().item() == pytest.approx(1, abs=0.05)
    assert layer.W_2(torch.randn(400, 256)).std().item() == pytest.approx(1, abs=0.05)


def test_it_has_as_many_parameters_as_the_formula_says_and_two_flops_for_each_but_the_embedding_and_biases():
    V, W, D, F = VOCAB_SIZE, 3, 4, 6
    for tied in (True, False):
        model = build_model(
            MLPConfig(type="mlp", context_length=8, window=W, d_model=D, d_ff=F, tied_embeddings=tied), V
        )
        cost = count_cost(model)
        parts = {"embedding": V * D, "feed_forward": W * D * F + F + F * D, "unembedding": 0 if tied else V * D}
        total = sum(parts.values())
        used = {part: n for part, n in vars(cost.parameters).items() if n}
        assert used == {part: n for part, n in parts.items() if n} | {"total": total, "active": total}
        flops = cost.forward_flops_per_token
        assert (flops.feed_forward, flops.unembedding) == (2 * (W * D * F + F * D), 2 * V * D)
        assert flops.total == flops.feed_forward + flops.unembedding

from itertools import cycle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import (
    AXES,
    VOCAB_SIZE,
    all_combinations,
    build_away_from_zero,
    covering_combinations,
    float64,
    tiny_config,
    tiny_configs,
)
from reference.decoder import decoder as reference_decoder
from rounding import assert_equal_to_rounding


def logits_and_embedded(model, tokens_BT):
    """The logits, and the vectors that entered the first block as a tensor that collects its gradient."""
    entered = []

    def keep(_block, inputs):
        inputs[0].retain_grad()
        entered.append(inputs[0])

    handle = model.blocks[0].register_forward_pre_hook(keep)
    logits_BTV = model(tokens_BT)
    handle.remove()
    return logits_BTV, entered[0]


def influence(model, length):
    """influence[t, s]: the largest |d (logits_t projected at random) / d embedding_s|, from one backward pass.

    Row t of a batch of equal sequences is asked for its logits at t alone, so row t of the gradient is that
    of logits_t. A random projection hides a dependence with probability zero.
    """
    generator = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(VOCAB_SIZE, (1, length), generator=generator).repeat(length, 1)
    logits_BTV, embedded_BTD = logits_and_embedded(model, tokens_BT)
    projection_V = torch.randn(VOCAB_SIZE, generator=generator)
    (logits_BTV.diagonal().mT @ projection_V).sum().backward()
    return embedded_BTD.grad.abs().amax(dim=-1)


@pytest.mark.parametrize("position", AXES["position"], ids=str)
def test_no_combination_of_axes_sees_the_future(position, soak):
    """The check of equation 8: d logits_t / d embedding_s is exactly 0 for s > t, and is not for s <= t.

    One layer: a stack of causal layers is causal. And every parameter has its part in the logits: but for the bias
    of the keys, which shifts all scores of a query alike, so that softmax does not see it.
    """
    combinations = all_combinations if soak else covering_combinations
    past_and_present = torch.tril_indices(4, 4).unbind()
    for config in combinations(position=[position], n_layers=[1]):
        model = build_away_from_zero(config)
        influence_TS = influence(model, length=4)
        assert not influence_TS.triu(diagonal=1).any(), config
        assert influence_TS[past_and_present].all(), config
        for name, parameter in model.named_parameters():
            assert name.endswith("W_K.bias") or parameter.grad.any(), (config, name)


@given(config=tiny_configs, tokens=st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=6))
@settings(deadline=None, max_examples=80)
def test_the_decoder_is_the_loops(config, tokens):
    """Equations 3 to 11 together, in float64."""
    with float64():
        model = build_away_from_zero(config)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    logits_TV = model(torch.tensor([tokens]))[0].detach().numpy()
    np.testing.assert_allclose(logits_TV, reference_decoder(tokens, config, weights), rtol=0, atol=1e-10)


@pytest.mark.parametrize("placement", ["pre", "post", "parallel", "output"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_logits_are_products_with_what_leaves_the_blocks_normalised_once(placement, norm):
    """Equation 3: z = U norm(x); with post-norm the last block has normalised x."""
    with float64():
        model = build_away_from_zero(tiny_config(norm_placement=placement, norm=norm, tied_embeddings=False))
    left = []
    model.blocks[-1].register_forward_hook(lambda _block, _inputs, output: left.append(output))
    logits_BTV = model(torch.tensor([[1, 2, 3]]))
    x_BTD, U_VD = left[0], model.embeddings.unembedding_VD
    if placement != "post":
        x_BTD = x_BTD - x_BTD.mean(-1, keepdim=True) if norm == "layer_norm" else x_BTD
        x_BTD = model.final_norm.weight * x_BTD / (x_BTD.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(logits_BTV, x_BTD @ U_VD.T)


def test_decoding_with_a_cache_is_the_full_forward_pass(soak):
    """In chunks of any size. In the short form a model reads one kind of them, and two axes meet, not three."""
    kinds_of_chunks = [[8], [1] * 8, [3, 1, 4], [1, 7]]
    tokens_BT = torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(0))
    with float64(), torch.no_grad():
        attentions = [*AXES["attention"], "fused"]
        strength = 3 if soak else 2
        configs = covering_combinations(strength, attention=attentions, zero_init_projections=[False])
        for config, one_kind in zip(configs, cycle(kinds_of_chunks), strict=False):
            model = build_away_from_zero(config)
            for chunks in kinds_of_chunks if soak else [one_kind]:
                cache = model.new_state(batch_size=3)
                pieces = [model(chunk_BT, cache) for chunk_BT in tokens_BT.split(chunks, dim=1)]
                assert cache.length == 8
                torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens_BT), rtol=0, atol=1e-11)


def test_the_rows_of_a_batch_do_not_meet():
    tokens_BT = torch.randint(VOCAB_SIZE, (5, 8))
    with float64():
        model = build_away_from_zero(tiny_config())
    alone = torch.cat([model(row.unsqueeze(0)) for row in tokens_BT])
    torch.testing.assert_close(model(tokens_BT), alone, rtol=0, atol=1e-12)


def test_the_cache_is_in_the_type_that_the_layers_compute_in():
    model = build_away_from_zero(tiny_config(qk_norm=True, position={"type": "rope"}))
    assert model.new_state(1).layers[0].keys_BGSK.dtype == torch.float32
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        cache = model.new_state(2)
        assert cache.layers[0].keys_BGSK.dtype == torch.bfloat16
        pieces = [model(token_BT, cache) for token_BT in tokens_BT.split(1, dim=1)]
        assert_equal_to_rounding(torch.cat(pieces, dim=1), model(tokens_BT), dtype=torch.bfloat16)


def test_more_tokens_than_the_context_is_an_error_that_names_both():
    model = build_away_from_zero(tiny_config())
    with pytest.raises(ValueError, match="9 tokens are more than the context_length of 8"):
        model(torch.zeros(1, 9, dtype=torch.long))
    cache = model.new_state(1)
    model(torch.zeros(1, 6, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="9 tokens are more than the context_length of 8"):
        model(torch.zeros(1, 3, dtype=torch.long), cache)


@given(st.floats(0.1, 50.0))
@settings(deadline=None, max_examples=20)
def test_the_soft_cap_bounds_the_logits_and_keeps_their_order(cap):
    tokens_BT = torch.zeros(1, 4, dtype=torch.long)
    with float64():
        free = build_away_from_zero(tiny_config())(tokens_BT)
        capped = build_away_from_zero(tiny_config(logit_soft_cap=cap))(tokens_BT)
    assert capped.abs().max() <= cap
    torch.testing.assert_close(capped, cap * torch.tanh(free / cap))


def test_dropout_of_the_whole_model_is_on_in_training_and_off_in_evaluation():
    tokens_BT = torch.randint(VOCAB_SIZE, (4, 8))
    with_dropout = build_away_from_zero(tiny_config(dropout=0.5))
    without = build_away_from_zero(tiny_config(dropout=0.0))
    assert torch.equal(with_dropout.eval()(tokens_BT), without(tokens_BT))
    with_dropout.train()
    assert not torch.allclose(with_dropout(tokens_BT), with_dropout(tokens_BT))
    _, embedded_BTD = logits_and_embedded(with_dropout, tokens_BT)
    assert 0.35 < (embedded_BTD == 0).float().mean() < 0.65


def test_dropout_drops_a_share_of_embeddings_and_of_what_is_added_and_keeps_their_mean():
    """Equation 46: what stays is divided by 1 - delta."""
    share, n = 0.25, 4000
    model = build_away_from_zero(tiny_config(dropout=share)).train()
    _, embedded_BTD = logits_and_embedded(model, torch.full((n, 1), 3))
    layer, x_D = model.blocks[0].feed_forward.sublayer, torch.arange(8.0)
    added_BTD = layer(x_D.expand(n, 1, 8))
    pairs = [(embedded_BTD, model.embeddings.embedding_VD[3]), (added_BTD, layer.eval()(x_D))]
    for found_BTD, whole_D in pairs:
        is_kept = found_BTD != 0
        assert abs(is_kept.float().mean().item() - (1 - share)) < 0.02
        torch.testing.assert_close(found_BTD, is_kept * whole_D / (1 - share))


# The compiler makes an instance of our autograd functions, and PyTorch warns of that, though nobody else can fix it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_forward_pass_compiles_to_one_graph():
    """Nothing in it falls back to Python; the backend that compiles nothing keeps the test quick."""
    model = build_away_from_zero(tiny_config(position={"type": "rope"}, qk_norm=True, n_kv_heads=1))
    tokens_BT = torch.arange(8).view(2, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens_BT), model(tokens_BT))

"""A trace shows the numbers of the loop reference at every place, and leaves nothing behind in the model."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.inspection.trace import trace
from reference import decoder as reference
from reference.attention import attention

texts = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=8)


@given(tiny_configs.filter(lambda config: config.attention != "linear"), texts)
@settings(max_examples=20)
def test_attention_residuals_and_logit_lens_are_those_of_the_loop_reference(config, ids):
    with float64():
        model = build_away_from_zero(config).eval()
    queries_and_keys = []
    for block in model.blocks:
        block.attention.sublayer.attend = keeping_queries_and_keys(block.attention.sublayer.attend, queries_and_keys)
    model(torch.tensor([ids]))
    kept = queries_and_keys.copy()  # a trace asks each attention once more
    traced = trace(model, ids)

    window = getattr(config.attention, "window", None)
    for layer, (q_HTK, k_HSK) in enumerate(kept):
        for head in range(config.n_heads):
            weights_TS = attention(q_HTK[head], k_HSK[head], np.eye(len(ids)), window=window)
            np.testing.assert_allclose(traced.attention[layer, head], weights_TS, atol=1e-12)

    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    expected = [reference.embed(ids, config, weights)]
    for layer in range(config.n_layers):
        expected += reference.block(expected[-1], config, weights, f"blocks.{layer}")
    np.testing.assert_allclose(traced.residuals, np.stack(expected), atol=1e-10)
    assert traced.points == ["embedding", "0.attention", "0.feed_forward", "1.attention", "1.feed_forward"]
    if config.norm_placement != "post":
        expected = [reference.norm(x_TD, config, weights, "final_norm") for x_TD in expected]
    lens_NTV = np.stack([reference.unembed(x_TD, config, weights) for x_TD in expected])
    np.testing.assert_allclose(traced.logits, lens_NTV, atol=1e-10)


def keeping_queries_and_keys(attend, kept):
    def keep(q_BHTK, k_BHSK, v_BHSK, dropout, mask):
        kept.append((q_BHTK[0].detach().numpy(), k_BHSK[0].detach().numpy()))
        return attend(q_BHTK, k_BHSK, v_BHSK, dropout, mask)

    return keep


def parts(model):
    """All that a trace might leave behind: hooks, another attention, another mode."""
    modules = list(model.modules())
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]
    return hooks, [module.training for module in modules], [module.__dict__.get("gather") for module in modules]


def test_the_model_is_unchanged_after_a_trace_and_after_one_that_failed():
    model = build_away_from_zero(tiny_config(dropout=0.5)).train()
    before = parts(model)
    rng = torch.get_rng_state()
    torch.testing.assert_close(trace(model, [1, 2]).logits, trace(model, [1, 2]).logits)
    assert parts(model) == before
    with pytest.raises(ValueError, match="9 tokens are more than the context_length of 8"):
        trace(model, [0] * 9)
    assert parts(model) == before
    assert torch.equal(torch.get_rng_state(), rng)

from functools import partial
from itertools import product
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pellucid.model.attention import (
    MultiHeadAttention,
    causal_mask,
    explicit_attention,
    scaled_dot_product,
)
from pellucid.model.fused_attention import fused_attention
from pellucid.model.kv_cache import NoCache
from pellucid.model.norms import LayerNorm, RMSNorm
from pellucid.model.positions import NoPositions
from reference import attention as reference

CAUSAL = [explicit_attention, fused_attention]


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build_attention(*, n_heads=4, n_kv_heads=2, bias=True, dropout=0.0, attend=explicit_attention, norm=nn.Identity):
    torch.manual_seed(0)
    return MultiHeadAttention(
        d_model=8,
        head_width=8 // n_heads,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        rotate=NoPositions().rotate,
        attend=attend,
        query_norm=norm(),
        key_norm=norm(),
        bias=bias,
        output_bias=bias,
        dropout=dropout,
    ).double()


@pytest.mark.parametrize("attend", CAUSAL)
@given(
    n_queries=st.integers(1, 5),
    n_cached=st.integers(0, 4),
    n_heads=st.integers(1, 3),
    width=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=40)
def test_attention_is_the_loop_of_equations_7_and_8(attend, n_queries, n_cached, n_heads, width, seed):
    """Also when keys stand before the first query, as a cache puts them there."""
    q = random(2, n_heads, n_queries, width, seed=seed)
    k, v = random(2, 2, n_heads, n_cached + n_queries, width, seed=seed + 1)
    output = attend(q, k, v, 0.0)
    for batch in range(2):
        for head in range(n_heads):
            expected = reference.attention(*(x[batch, head].numpy() for x in (q, k, v)))
            np.testing.assert_allclose(output[batch, head].numpy(), expected, rtol=0, atol=1e-12)


def test_attention_without_a_mask_is_the_loop_of_equation_7():
    q, k, v = random(1, 1, 3, 4), random(1, 1, 5, 4, seed=1), random(1, 1, 5, 4, seed=2)
    output = scaled_dot_product(q, k, v, torch.zeros(3, 5, dtype=torch.float64), 0.0)
    expected = reference.attention(*(x[0, 0].numpy() for x in (q, k, v)), causal=False)
    np.testing.assert_allclose(output[0, 0].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("numbers", "variance"), [((-1.0, 1.0), 1), ((0.0, 2.0), 3)], ids=["mean 0", "mean 1"])
def test_the_root_gives_scores_the_variance_1_if_queries_and_keys_have_mean_0_and_variance_1(numbers, variance):
    """Over all queries and keys of three coordinates. Beside a key of zeros, the odds of a weight are e^score."""
    vectors = torch.tensor(list(product(numbers, repeat=3)), dtype=torch.float64)
    q, keys = vectors[None, None], torch.stack([vectors, torch.zeros_like(vectors)], dim=1)[:, None]
    v, no_mask = torch.eye(2, dtype=torch.float64), torch.zeros(len(vectors), 2, dtype=torch.float64)
    weights = scaled_dot_product(q.expand(len(keys), -1, -1, -1), keys, v.expand(len(keys), 1, 2, 2), no_mask, 0.0)
    scores = (weights[..., 0] / weights[..., 1]).log()
    assert scores.var(correction=0).item() == pytest.approx(variance)


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_with_qk_norm_no_score_exceeds_the_root_of_the_head_width(norm):
    """However large x is; without it they grow with the square of x."""
    highest = []

    def attend(q_BHTK, k_BHSK, v_BHSK, _dropout, _mask):
        highest.append((q_BHTK @ k_BHSK.mT / sqrt(4)).abs().max().item())
        return v_BHSK

    settings = {"n_heads": 2, "n_kv_heads": 2, "attend": attend}
    with_norm = build_attention(**settings, norm=partial(norm, 4, **({"bias": False} if norm is LayerNorm else {})))
    for attention in (with_norm, build_attention(**settings)):
        attention(1e3 * random(4, 50, 8), NoCache())
    assert 0.9 * sqrt(4) < highest[0] <= sqrt(4)
    assert highest[1] > 1e3


def test_the_causal_mask_is_equation_8():
    hidden = float("-inf")
    like = torch.empty(0)
    assert causal_mask(3, 3, like).tolist() == [[0, hidden, hidden], [0, 0, hidden], [0, 0, 0]]
    assert causal_mask(2, 4, like).tolist() == [[0, 0, 0, hidden], [0, 0, 0, 0]]
    assert causal_mask(1, 3, like).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(1, 1), (4, 4), (4, 2), (4, 1)])
def test_multi_head_attention_is_the_loop_of_equation_9(n_heads, n_kv_heads):
    attention = build_attention(n_heads=n_heads, n_kv_heads=n_kv_heads)
    x = random(2, 5, 8)
    weights = {f"W_{s}": getattr(attention, f"W_{s}").weight.detach().numpy() for s in "QKVO"}
    biases = {f"b_{s}": getattr(attention, f"W_{s}").bias.detach().numpy() for s in "QKVO"}
    output = attention(x, NoCache()).detach().numpy()
    for batch in range(2):
        expected = reference.multi_head_attention(
            x[batch].numpy(),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            **weights,
            **biases,
            attend=reference.attention,
        )
        np.testing.assert_allclose(output[batch], expected, rtol=0, atol=1e-12)


def attend_to_all(q_BHTK, k_BHSK, v_BHSK, dropout, _mask):
    no_mask_TS = torch.zeros(q_BHTK.size(2), k_BHSK.size(2), dtype=q_BHTK.dtype)
    return scaled_dot_product(q_BHTK, k_BHSK, v_BHSK, no_mask_TS, dropout)


@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_without_positions_and_mask_a_permutation_of_tokens_permutes_the_outputs(permutation, seed):
    """The check of equation 6: such attention sees a set, so order must be put in."""
    attention = build_attention(attend=attend_to_all)
    x = random(2, 6, 8, seed=seed)
    permuted_after = attention(x, NoCache())[:, permutation]
    permuted_before = attention(x[:, permutation], NoCache())
    torch.testing.assert_close(permuted_before, permuted_after, rtol=0, atol=1e-12)


def test_the_causal_mask_breaks_the_symmetry():
    """Reversing the tokens does not reverse causal attention's outputs: so the check above can fail."""
    attention = build_attention()
    x = random(1, 6, 8)
    assert not torch.allclose(attention(x.flip(1), NoCache()), attention(x, NoCache()).flip(1))


@pytest.mark.parametrize("attend", [explicit_attention, fused_attention])
def test_dropout_acts_in_training_alone(attend):
    attention = build_attention(dropout=0.5, attend=attend)
    without = build_attention(dropout=0.0, attend=attend)
    x = random(2, 5, 8)
    assert torch.equal(attention.eval()(x, NoCache()), without(x, NoCache()))
    attention.train()
    assert not torch.allclose(attention(x, NoCache()), attention(x, NoCache()))


@pytest.mark.parametrize("attend", [explicit_attention, fused_attention])
def test_attention_dropout_keeps_the_mean(attend):
    """Weights that survive are scaled up, so that the average over many draws is attention without dropout."""
    torch.manual_seed(0)
    q, k, v = (random(1, 1, 3, 2, seed=seed) for seed in range(3))
    draws = torch.stack([attend(q, k, v, 0.3) for _ in range(4000)])
    torch.testing.assert_close(draws.mean(dim=0), attend(q, k, v, 0.0), rtol=0, atol=0.1)
    assert draws[:, ..., 0, :].unique(dim=0).size(0) == 2  # the first query has one key: kept or dropped

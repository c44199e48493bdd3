"""Sliding-window attention: nothing older than the window is seen, in a layer, or kept, in its cache."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_config
from model.test_decoder import influence
from pellucid.model.attention import explicit_attention
from pellucid.model.sliding_window import WindowCache, attend_in_window, window_mask
from reference import attention as reference
from rounding import assert_equal_to_rounding


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def windowed(window, **choices):
    return tiny_config(attention={"type": "sliding_window", "window": window}, **choices)


def test_the_mask_is_equation_39():
    hidden = float("-inf")
    like = torch.empty(0)
    assert window_mask(3, 3, 2, like).tolist() == [[0, hidden, hidden], [0, 0, hidden], [hidden, 0, 0]]
    assert window_mask(2, 4, 2, like).tolist() == [[hidden, 0, 0, hidden], [hidden, hidden, 0, 0]]
    assert window_mask(2, 2, 1, like).tolist() == [[0, hidden], [hidden, 0]]


@given(
    n_queries=st.integers(1, 6),
    n_cached=st.integers(0, 4),
    window=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=40)
def test_attention_in_a_window_is_the_loop_of_equation_39(n_queries, n_cached, window, seed):
    q = random(2, 2, n_queries, 3, seed=seed)
    k, v = random(2, 2, 2, n_cached + n_queries, 3, seed=seed + 1)
    output = attend_in_window(q, k, v, 0.0, window=window)
    for row, head in np.ndindex(2, 2):
        expected = reference.attention(*(x[row, head].numpy() for x in (q, k, v)), window=window)
        np.testing.assert_allclose(output[row, head], expected, rtol=0, atol=1e-12)


def test_a_window_over_the_whole_text_is_causal_attention():
    q, k, v = (random(2, 2, 5, 3, seed=seed) for seed in range(3))
    torch.testing.assert_close(
        attend_in_window(q, k, v, 0.0, window=5), explicit_attention(q, k, v, 0.0), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(("n_layers", "window"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_layers_reach_back_as_far_as_their_windows_added_and_no_further(n_layers, window):
    model = build_away_from_zero(windowed(window, n_layers=n_layers, n_heads=1, n_kv_heads=1))
    influence_TS = influence(model, length=8)
    reach = n_layers * (window - 1)
    sees_TS = torch.ones(8, 8).tril().triu(-reach).bool()
    assert torch.equal(influence_TS > 0, sees_TS)


@given(window=st.integers(1, 10), lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6))
@settings(deadline=None, max_examples=40)
def test_a_text_read_in_pieces_is_the_text_read_at_once(window, lengths):
    """Also where a piece is longer than the window, or the window than the text."""
    tokens_BT = torch.randint(VOCAB_SIZE, (2, sum(lengths)), generator=torch.Generator().manual_seed(0))
    with float64(), torch.no_grad():
        model = build_away_from_zero(windowed(window, context_length=24, n_kv_heads=1))
        cache = model.new_state(2)
        pieces = [model(piece_BT, cache) for piece_BT in tokens_BT.split(lengths, dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens_BT), rtol=0, atol=1e-11)
    assert cache.length == sum(lengths)


def test_the_cache_keeps_what_the_next_token_sees_and_no_more():
    cache = WindowCache(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), window=3)
    numbers = torch.arange(1.0, 8).view(1, 1, 7, 1)
    seen = []
    for piece in numbers.split([1, 1, 1, 4], dim=2):
        keys, values = cache.append(piece, -piece)
        assert torch.equal(values, -keys)
        seen.append(keys.flatten().tolist())
    assert seen == [[1], [1, 2], [1, 2, 3], [2, 3, 4, 5, 6, 7]]
    assert cache.length == 7
    assert cache.keys_BGSK.flatten().tolist() == [6, 7]
    cache.reorder(torch.tensor([0, 0]))
    assert cache.append(torch.ones(2, 1, 1, 1), torch.ones(2, 1, 1, 1))[0].flatten().tolist() == [6, 7, 1] * 2


def test_the_cache_never_grows_beyond_the_window_nor_beyond_what_will_be_written():
    model = build_away_from_zero(windowed(3, context_length=100))
    assert model.new_state(5).layers[0].keys_BGSK.shape == (5, 2, 2, 4)
    assert model.new_state(5, capacity=1).layers[0].keys_BGSK.shape == (5, 2, 1, 4)


def test_training_in_bfloat16_is_training_in_float32_to_rounding():
    model = build_away_from_zero(windowed(3))
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    expected_BTV = model(tokens_BT)
    with torch.autocast("cpu", torch.bfloat16):
        logits_BTV = model(tokens_BT)
    logits_BTV.float().sum().backward()
    assert_equal_to_rounding(logits_BTV, expected_BTV, dtype=torch.bfloat16)

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_axes import VOCAB_SIZE, build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.generation.single_token import SingleTokenDecoder


@given(tiny_configs, st.integers(0, 7), st.integers(0, 2**32))
def test_a_single_token_gives_what_the_whole_text_gives(config, n_read_before, seed):
    with float64(), torch.inference_mode():
        model = build_away_from_zero(config).eval()
        tokens_BT = torch.randint(VOCAB_SIZE, (3, 8), generator=torch.Generator().manual_seed(seed))
        expected_BTV = model(tokens_BT)
        cache, single_token = model.new_cache(3), SingleTokenDecoder(model)
        if n_read_before:
            model(tokens_BT[:, :n_read_before], cache)
        for t in range(n_read_before, 8):
            logits_BV = single_token(tokens_BT[:, t], cache)
            torch.testing.assert_close(logits_BV, expected_BTV[:, t])
        assert cache.length == 8


def test_a_token_after_a_full_context_is_refused_and_leaves_the_cache_as_it_is():
    model = build_away_from_zero(tiny_config())
    cache, single_token = model.new_cache(1), SingleTokenDecoder(model)
    with torch.inference_mode():
        model(torch.zeros(1, 8, dtype=torch.long), cache)
        with pytest.raises(ValueError, match="9 tokens are more than the context_length of 8"):
            single_token(torch.zeros(1, dtype=torch.long), cache)
    assert cache.length == 8


def test_under_autocast_products_are_computed_in_bfloat16():
    model = build_away_from_zero(tiny_config(bias=True)).eval()
    tokens_BT = torch.randint(VOCAB_SIZE, (2, 8))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        expected_BTV = model(tokens_BT)
        cache, single_token = model.new_cache(2), SingleTokenDecoder(model)
        logits_BTV = torch.stack([single_token(tokens_BT[:, t], cache) for t in range(8)], dim=1)
    assert logits_BTV.dtype == torch.bfloat16
    torch.testing.assert_close(logits_BTV, expected_BTV, atol=0.1, rtol=0.1)


def test_the_settings_of_kernels_are_put_back():
    model = build_away_from_zero(tiny_config())
    assert torch.backends.mkldnn.enabled
    SingleTokenDecoder(model)(torch.zeros(1, dtype=torch.long), model.new_cache(1))
    assert torch.backends.mkldnn.enabled

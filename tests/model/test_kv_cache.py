import pytest
import torch

from pellucid.model.kv_cache import KVCache, LayerCache, NoCache


@pytest.fixture
def cache():
    shape = (3, 2, 5, 4)  # a batch of 3, 2 heads, 5 positions, width 4
    return KVCache([LayerCache(torch.zeros(shape), torch.zeros(shape)) for _ in range(2)])


def test_what_was_appended_comes_back_in_order(cache):
    first, second = torch.randn(2, 3, 2, 2, 4), torch.randn(2, 3, 2, 3, 4)
    layer = cache.layers[0]
    layer.append(*first)
    keys, values = layer.append(*second)
    assert torch.equal(keys, torch.cat([first[0], second[0]], dim=2))
    assert torch.equal(values, torch.cat([first[1], second[1]], dim=2))
    assert layer.length == 5


def test_layers_do_not_touch_each_other(cache):
    ones = torch.ones(3, 2, 1, 4)
    cache.layers[0].append(ones, ones)
    keys, _ = cache.layers[1].append(2 * ones, 2 * ones)
    assert torch.equal(keys, 2 * ones)
    assert torch.equal(cache.layers[0].keys_BGSK[:, :, :1], ones)


def test_appending_copies_nothing_that_is_held(cache):
    ones = torch.ones(3, 2, 1, 4)
    keys, _ = cache.layers[0].append(ones, ones)
    more_keys, _ = cache.layers[0].append(ones, ones)
    assert keys.data_ptr() == more_keys.data_ptr()


def test_a_full_cache_says_so_and_stays_as_it_is(cache):
    layer = cache.layers[0]
    layer.append(torch.ones(3, 2, 4, 4), torch.ones(3, 2, 4, 4))
    with pytest.raises(ValueError, match="6 positions do not fit into a cache of 5"):
        layer.append(torch.ones(3, 2, 2, 4), torch.ones(3, 2, 2, 4))
    assert layer.length == 4


def test_no_cache_hands_back_what_it_is_given():
    keys, values = torch.ones(1), torch.zeros(1)
    assert NoCache().length == 0
    assert NoCache().append(keys, values) == (keys, values)


def test_reordered_sequences_keep_their_own_keys_and_values(cache):
    keys, values = torch.randn(2, 3, 2, 4, 4)
    for layer in cache.layers:
        layer.append(keys, values)
    rows = torch.tensor([2, 0, 0])
    cache.reorder(rows)
    one = torch.ones(3, 2, 1, 4)
    for layer in cache.layers:
        keys_now, values_now = layer.append(one, one)
        assert torch.equal(keys_now[:, :, :4], keys[rows])
        assert torch.equal(values_now[:, :, :4], values[rows])

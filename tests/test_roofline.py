"""The limits of scripts/measurements/roofline.py are what one counts by hand, and every share is of the larger one."""

import pytest
import torch
from measurements import roofline
from measurements.roofline import Needs, Roof, needs_of_decoding, needs_of_training, shares

from pellucid.config.model import DecoderConfig, LearnedConfig
from pellucid.cost.meter import Meter

# L layers, width D, vocabulary V, context T; attention has 4 matrices of D x D, the feed-forward layer 2 of D x 4D.
L, D, V, T = 3, 8, 10, 6
CONFIG = DecoderConfig(context_length=T, d_model=D, n_layers=L, n_heads=2, position=LearnedConfig(type="learned"))
MATRICES = 12 * L * D**2 + V * D  # the embedding is tied: it stands here once, as the last matrix
NORMS = (2 * L + 1) * D
ROOF = Roof({torch.float32: 100.0, torch.bfloat16: 200.0}, bytes_per_second=10.0, seconds_per_call=0.5)


def test_an_update_does_each_product_three_times_and_moves_each_weight_eleven_times():
    needs = needs_of_training(CONFIG, V, 5, torch.bfloat16)
    of_a_token = 2 * MATRICES + 4 * L * D * T
    assert needs == Needs(5 * 3 * of_a_token, 11 * 4 * (MATRICES + NORMS + T * D), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_decoding_reads_all_weights_once_and_the_keys_and_values_of_each_sequence(dtype):
    """Three tokens each: they meet the keys of 1, 2 and 3 tokens, 2 in the mean."""
    needs = needs_of_decoding(CONFIG, V, 5, 3, dtype)
    assert needs.flops == 5 * (2 * MATRICES + 4 * L * D * 2)
    assert needs.n_bytes == dtype.itemsize * (MATRICES + NORMS + 5 * 2 * L * D * 2)


def test_a_share_is_of_the_larger_of_both_limits_in_each_program_s_own_format():
    products, reading = Needs(400.0, 10.0, torch.bfloat16), Needs(400.0, 80.0, torch.float32)
    row = shares(ROOF, 3, (products, 4.0), (reading, 16.0))
    assert (row["operations (ms)"], row["memory (ms)"], row["calls (ms)"]) == (2000, 1000, 1500)
    assert (row["Pellucid (%)"], row["transformers (%)"]) == (50, 50)


def test_the_cost_of_a_call_is_the_time_of_the_chain_by_the_calls_that_it_makes(monkeypatch):
    def count(work, seconds):
        with Meter() as meter:
            work()
        return float(meter.operations)

    monkeypatch.setattr(roofline, "fastest", count)
    assert roofline.measure_seconds_per_call(torch.device("cpu")) == 1


def test_memory_is_read_once_to_sum_it(monkeypatch):
    def as_long_as(work, seconds):
        assert work() == 2**10
        return 0.5

    monkeypatch.setattr(roofline, "fastest", as_long_as)
    monkeypatch.setattr(roofline, "ARRAY_BYTES", 2**12)
    assert roofline.measure_reading(torch.device("cpu")) == 2**13

"""Schedules: where they start, stay and end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.training.schedules import constant, cosine, warmup_stable_decay


def test_warmup_rises_in_equal_parts_from_above_zero():
    assert [constant(step, warmup_steps=4) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert constant(0, warmup_steps=0) == 1.0


def test_cosine_starts_at_one_is_half_way_down_half_way_and_ends_at_the_fraction():
    factors = [cosine(step, steps=101, warmup_steps=0, final_lr_fraction=0.2) for step in range(101)]
    assert (factors[0], factors[50], factors[100]) == pytest.approx((1.0, 0.6, 0.2))
    assert factors == sorted(factors, reverse=True)


def test_warmup_stable_decay_stays_at_one_then_falls_in_a_straight_line():
    factors = [
        warmup_stable_decay(step, steps=100, warmup_steps=10, decay_fraction=0.2, final_lr_fraction=0.0)
        for step in range(100)
    ]
    assert factors[10:80] == [1.0] * 70
    falls = [a - b for a, b in pairwise(factors[79:])]
    assert falls == pytest.approx([0.05] * 20)
    assert factors[-1] == 0.0


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 1))
def test_no_schedule_leaves_the_range_from_zero_to_one(steps, warm_share, decay_fraction, final_lr_fraction):
    warmup_steps = int(warm_share * steps)
    for step in range(steps):
        given_settings = {"steps": steps, "warmup_steps": warmup_steps, "final_lr_fraction": final_lr_fraction}
        assert 0 <= cosine(step, **given_settings) <= 1
        assert 0 <= warmup_stable_decay(step, decay_fraction=decay_fraction, **given_settings) <= 1

"""Scaling laws: points that lie on a law give it back, and the interval tells how sure the floor is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.conftest import own_code

scaling = own_code("scaling")

FLOPS = np.geomspace(1e11, 1e14, 16)
LAW = scaling.PowerLaw(irreducible=0.5, scales=(2e4,), exponents=(0.4,))
SIZES, TOKENS = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e4, 1e6, 5), np.geomspace(1e6, 1e8, 5)))
BY_SIZE = np.stack([SIZES, TOKENS], axis=1)
SIZE_LAW = scaling.PowerLaw(irreducible=0.5, scales=(40.0, 60.0), exponents=(0.5, 0.35))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(scaling, "N_RESAMPLES", 20)


def noisy(loss, seed, deviation=0.01):
    return loss * np.exp(deviation * np.random.default_rng(seed).standard_normal(len(loss)))


def test_points_on_a_law_give_it_back():
    found = scaling.fit_law(FLOPS[:, None], LAW(FLOPS))
    assert found.irreducible == pytest.approx(0.5, rel=1e-3)
    assert found.exponents[0] == pytest.approx(0.4, rel=1e-3)
    assert found(FLOPS) == pytest.approx(LAW(FLOPS), rel=1e-4)


def test_points_on_a_law_of_parameters_and_data_give_it_back():
    found = scaling.fit_law(BY_SIZE, SIZE_LAW(SIZES, TOKENS))
    assert found.irreducible == pytest.approx(0.5, rel=5e-3)
    assert found.exponents[0] == pytest.approx(0.5, rel=5e-3)
    assert found.exponents[1] == pytest.approx(0.35, rel=1e-2)
    assert found.compute_exponent == pytest.approx(0.5 * 0.35 / 0.85, rel=1e-2)


def test_with_the_floor_given_the_exponent_comes_back_and_the_floor_stays():
    found = scaling.fit_law(FLOPS[:, None], LAW(FLOPS), irreducible=0.5)
    assert found.irreducible == 0.5
    assert found.exponents[0] == pytest.approx(0.4, rel=1e-4)


def test_the_interval_holds_the_true_floor_for_most_noisy_experiments():
    n_held = 0
    for seed in range(12):
        loss = noisy(LAW(FLOPS), seed)
        low, high = scaling.fit_frontier(FLOPS, loss).interval(lambda each: each.irreducible)
        assert low <= high
        n_held += low - 1e-3 <= 0.5 <= high + 1e-3
    assert n_held >= 7, "of 12; that it is a 90 % interval, with few and noisy runs, is only roughly true"


def test_resamples_of_runs_without_noise_agree():
    fit = scaling.fit_with_resamples(BY_SIZE, SIZE_LAW(SIZES, TOKENS))
    assert fit.interval(lambda each: each.irreducible) == pytest.approx((0.5, 0.5), rel=2e-2)
    assert len(fit.resamples) == 20


def test_a_constant_on_all_losses_is_a_constant_on_the_floor():
    higher = scaling.fit_law(FLOPS[:, None], LAW(FLOPS) + 0.25)
    assert higher.irreducible == pytest.approx(0.75, rel=2e-3)
    assert higher.exponents[0] == pytest.approx(0.4, rel=5e-3)


def test_another_unit_of_compute_leaves_the_exponent():
    found = scaling.fit_law(FLOPS[:, None] / 1e12, LAW(FLOPS))
    assert found.exponents[0] == pytest.approx(0.4, rel=1e-3)
    assert found.irreducible == pytest.approx(0.5, rel=1e-3)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_no_run_beats_one_of_the_frontier_with_less_or_equal_compute(runs):
    flops, loss = np.array(runs, dtype=float).T
    chosen = scaling.frontier(flops, loss)
    for i in chosen:
        assert not any(flops[j] <= flops[i] and loss[j] < loss[i] for j in range(len(runs)))
    assert loss.min() in loss[chosen]
    assert (np.diff(flops[chosen]) > 0).all()
    assert (np.diff(loss[chosen]) < 0).all()


@pytest.mark.parametrize("cheapest", [True, False])
def test_more_runs_of_a_clean_law_find_the_floor(cheapest, monkeypatch):
    monkeypatch.setattr(scaling, "N_RESAMPLES", 10)
    fits = scaling.fits_of_fewer_runs(FLOPS, LAW(FLOPS), cheapest=cheapest)
    assert list(fits) == sorted(fits)
    assert max(fits) == len(FLOPS)
    of_all = fits[len(FLOPS)]
    assert of_all.law.irreducible == pytest.approx(0.5, rel=1e-3)
    low, high = of_all.interval(lambda law: law.irreducible)
    assert low <= 0.501
    assert high >= 0.499


def test_runs_before_a_step_mislead_the_fit_and_those_beyond_it_do_not(monkeypatch):
    """A stair: a plateau stands in the way of the law, so the floor is found only from its far side."""
    monkeypatch.setattr(scaling, "N_RESAMPLES", 1)
    loss = np.where(FLOPS < 3e12, np.maximum(LAW(FLOPS) + 0.5, 1.0), LAW(FLOPS))
    from_cheapest = list(scaling.fits_of_fewer_runs(FLOPS, loss, cheapest=True).values())
    from_most_expensive = list(scaling.fits_of_fewer_runs(FLOPS, loss, cheapest=False).values())
    assert from_most_expensive[0].law.irreducible == pytest.approx(0.5, rel=1e-2)
    assert from_cheapest[1].law.irreducible > 0.9


def test_a_floor_above_the_lowest_loss_is_told_and_not_hidden():
    """Three runs of a steep law, then one far below it: the law that suits most of them denies the last."""
    loss = np.append(1.0 + 3 * (FLOPS[:8] / FLOPS[0]) ** -2.0, 0.9)
    assert scaling.fit_law(FLOPS[:9, None], loss).irreducible > 0.95


def test_too_few_runs_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="2 amounts of compute .* too few to fit a scaling law; it takes 3"):
        scaling.fit_law(FLOPS[:2, None], LAW(FLOPS[:2]))
    with pytest.raises(ValueError, match="model sizes are too few"):
        scaling.fit_law(BY_SIZE[:2], np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="a scaling law takes 4 or more: make larger runs"):
        scaling.fits_of_fewer_runs(FLOPS, np.linspace(1, 2, 16), cheapest=True)

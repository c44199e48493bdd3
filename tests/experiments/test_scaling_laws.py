"""Scaling laws: points that lie on a law give it back, and the interval tells how sure the floor is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.conftest import own_code

FLOPS = np.geomspace(1e11, 1e14, 16)
SIZES, TOKENS = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e4, 1e6, 5), np.geomspace(1e6, 1e8, 5)))
BY_SIZE = np.stack([SIZES, TOKENS], axis=1)


@pytest.fixture(scope="module")
def scaling():
    """The code of the experiment, with few resamples. Reading it loads SciPy."""
    module = own_code("scaling")
    module.N_RESAMPLES = 20
    return module


def law(flops):
    return 0.5 + 2e4 * flops**-0.4


def law_of_sizes(parameters, tokens):
    return 0.5 + 40 * parameters**-0.5 + 60 * tokens**-0.35


@pytest.mark.parametrize(("unit", "more"), [(1, 0), (1e12, 0), (1, 0.25)])
def test_points_on_a_law_give_it_back_in_any_unit_of_compute_and_above_any_floor(scaling, unit, more):
    found = scaling.fit_law(FLOPS[:, None] / unit, law(FLOPS) + more)
    assert found.irreducible == pytest.approx(0.5 + more, rel=2e-3)
    assert found.exponents[0] == pytest.approx(0.4, rel=5e-3)
    assert found(FLOPS / unit) == pytest.approx(law(FLOPS) + more, rel=1e-4)


def test_points_on_a_law_of_parameters_and_data_give_it_back(scaling):
    fit = scaling.fit_with_resamples(BY_SIZE, law_of_sizes(SIZES, TOKENS))
    found = fit.law
    assert found.irreducible == pytest.approx(0.5, rel=5e-3)
    assert found.exponents[0] == pytest.approx(0.5, rel=5e-3)
    assert found.exponents[1] == pytest.approx(0.35, rel=1e-2)
    assert found.compute_exponent == pytest.approx(0.5 * 0.35 / 0.85, rel=1e-2)
    assert fit.interval(lambda each: each.irreducible) == pytest.approx((0.5, 0.5), rel=2e-2)
    assert len(fit.resamples) == 20


def test_with_the_floor_given_the_exponent_comes_back_and_the_floor_stays(scaling):
    found = scaling.fit_law(FLOPS[:, None], law(FLOPS), irreducible=0.5)
    assert found.irreducible == 0.5
    assert found.exponents[0] == pytest.approx(0.4, rel=1e-4)


def test_the_interval_holds_the_true_floor_for_most_noisy_experiments(scaling):
    n_held = 0
    for seed in range(6):
        loss = law(FLOPS) * np.exp(0.01 * np.random.default_rng(seed).standard_normal(len(FLOPS)))
        low, high = scaling.fit_frontier(FLOPS, loss).interval(lambda each: each.irreducible)
        assert low <= high
        n_held += low - 1e-3 <= 0.5 <= high + 1e-3
    assert n_held >= 4, "of 6; that it is a 90 % interval, with few and noisy runs, is only roughly true"


@given(runs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_no_run_beats_one_of_the_frontier_with_less_or_equal_compute(scaling, runs):
    flops, loss = np.array(runs, dtype=float).T
    chosen = scaling.frontier(flops, loss)
    for i in chosen:
        assert not any(flops[j] <= flops[i] and loss[j] < loss[i] for j in range(len(runs)))
    assert loss.min() in loss[chosen]
    assert (np.diff(flops[chosen]) > 0).all()
    assert (np.diff(loss[chosen]) < 0).all()


def test_runs_before_a_step_mislead_the_fit_and_those_beyond_it_do_not(scaling, monkeypatch):
    """A stair: a plateau stands in the way of the law, so the floor is found only from its far side."""
    monkeypatch.setattr(scaling, "N_RESAMPLES", 1)
    loss = np.where(FLOPS < 3e12, np.maximum(law(FLOPS) + 0.5, 1.0), law(FLOPS))
    fits = [scaling.fits_of_fewer_runs(FLOPS, loss, cheapest=cheapest) for cheapest in (True, False)]
    assert all(list(by_n) == sorted(by_n) and max(by_n) == len(FLOPS) for by_n in fits)
    from_cheapest, from_most_expensive = ([fit.law.irreducible for fit in by_n.values()] for by_n in fits)
    assert from_most_expensive[0] == pytest.approx(0.5, rel=1e-2)
    assert from_cheapest[1] > 0.9


def test_a_floor_above_the_lowest_loss_is_told_and_not_hidden(scaling):
    """Three runs of a steep law, then one far below it: the law that suits most of them denies the last."""
    loss = np.append(1.0 + 3 * (FLOPS[:8] / FLOPS[0]) ** -2.0, 0.9)
    assert scaling.fit_law(FLOPS[:9, None], loss).irreducible > 0.95


def test_too_few_runs_are_refused_in_a_sentence(scaling):
    with pytest.raises(ValueError, match="2 amounts of compute .* too few to fit a scaling law; it takes 3"):
        scaling.fit_law(FLOPS[:2, None], law(FLOPS[:2]))
    with pytest.raises(ValueError, match="model sizes are too few"):
        scaling.fit_law(BY_SIZE[:2], np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="a scaling law takes 4 or more: make larger runs"):
        scaling.fits_of_fewer_runs(FLOPS, np.linspace(1, 2, 16), cheapest=True)

"""Numbers on axes: short, apart, and enough of them on every logarithmic axis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.figures import distinct_labels, in_short, new_figure, round_ticks, save_figure


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.02, "0.02"), (0, "0"), (-1.5, "-1.5"), (9376, "9376"), (20976, "20.98k"), (3e6, "3M"), (2e15, "2P")],
)
def test_a_number_is_short(value, text):
    assert in_short(value) == text


def test_a_round_number_has_all_its_digits():
    assert in_short(576.2, digits=2) == "580"


@given(low=st.floats(1e-6, 1e16), ratio=st.floats(1.03, 1e9), most=st.integers(5, 7))
def test_a_logarithmic_axis_has_a_few_ticks_whatever_its_range(low, ratio, most):
    ticks = round_ticks(low, low * ratio, most)
    assert 2 <= len(ticks) <= 7
    assert ticks == sorted(ticks)
    assert low <= ticks[0] <= ticks[-1] <= low * ratio


def test_different_values_look_different_where_six_digits_can_tell_them_apart():
    assert distinct_labels([0.1234, 0.1235]) == ["0.1234", "0.1235"]
    assert distinct_labels([1, 1, 2]) == ["1", "1", "2"]


def test_equal_figures_give_equal_bytes(ink, tmp_path):
    files = [tmp_path / name for name in ("one.svg", "another.svg")]
    for file in files:
        figure = new_figure("A figure", 3, 2)
        figure.add_subplot().plot([1, 2], "o-")
        save_figure(figure, file)
    assert files[0].read_bytes() == files[1].read_bytes()

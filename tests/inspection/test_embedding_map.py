"""The map shows the plane of largest variance, with a colour for each kind."""

import numpy as np
import pytest
from matplotlib.image import imread

from pellucid.errors import ConfigError
from pellucid.inspection.embedding_map import MOST_KINDS, draw_map, principal_plane, write_map


def rotated_plane(n=40, width=6):
    """Points that vary only along two orthogonal directions, with known lengths."""
    rng = np.random.default_rng(0)
    axes_DD = np.linalg.qr(rng.standard_normal((width, width)))[0]
    points_N2 = rng.standard_normal((n, 2))
    points_N2 = np.linalg.qr(points_N2 - points_N2.mean(axis=0))[0] * [3.0, 1.0]
    return points_N2, (5 + points_N2 @ axes_DD[:2]).astype(np.float64)


def test_the_plane_is_that_in_which_the_vectors_differ():
    points_N2, vectors_ND = rotated_plane()
    plane = principal_plane(vectors_ND)
    np.testing.assert_allclose(np.abs(plane.points), np.abs(points_N2), atol=1e-9)
    assert plane.shares == pytest.approx((0.9, 0.1))


def test_the_same_vectors_in_another_order_give_the_same_map():
    _, vectors_ND = rotated_plane()
    order = np.random.default_rng(1).permutation(len(vectors_ND))
    np.testing.assert_allclose(principal_plane(vectors_ND[order]).points, principal_plane(vectors_ND).points[order])
    assert (principal_plane(np.ones((5, 3))).points == 0).all(), "equal vectors are one point"


def test_each_kind_has_its_colour_and_the_rare_ones_are_grey():
    _, vectors_ND = rotated_plane()
    kinds = [f"kind {number % (MOST_KINDS + 3)}" for number in range(len(vectors_ND))]
    figure = draw_map(vectors_ND, kinds, "A map", of="plot")
    [axes] = figure.axes
    labels = [line.get_label() for line in axes.lines]
    assert len(labels) == MOST_KINDS + 1
    assert labels[-1] == "3 others"
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == MOST_KINDS + 1
    assert sum(len(line.get_xdata()) for line in axes.lines) == len(vectors_ND)
    assert figure.legends[0].get_title().get_text() == "plot"
    assert "90%" in axes.get_xlabel()
    assert not draw_map(vectors_ND, None, "A map", of="plot").legends


@pytest.mark.usefixtures("ink")
@pytest.mark.parametrize("name", ["map.png", "map.svg"])
def test_a_map_is_written_whole(tmp_path, name):
    _, vectors_ND = rotated_plane()
    for kinds in (None, ["a", "b"] * 20):
        write_map(tmp_path / name, vectors_ND, kinds, "A map", of="plot")
    if name.endswith("png"):
        assert imread(tmp_path / name).std() > 0
    else:
        assert "first principal component" in (tmp_path / name).read_text()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_no_map_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="neither .png nor .svg"):
        write_map(tmp_path / "map.jpg", np.eye(4), None, "A map", of="plot")
    with pytest.raises(ConfigError, match="2 texts are too few for a map"):
        write_map(tmp_path / "map.png", np.eye(2), None, "A map", of="plot")

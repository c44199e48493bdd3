"""A map of texts by their vectors (`pellucid map`): similar texts are near each other.

Shapes: N texts, D width of their vectors.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pellucid.errors import ConfigError
from pellucid.figures import MARKERS, PALETTE, STYLE, new_figure, save_figure

Floats = NDArray[np.floating]

COLOURS = (*PALETTE, "black", "#8B5A2B")  # nine, for the nine plots; further kinds repeat them with other markers
MOST_KINDS = 12  # that a reader can tell apart; others are grey


@dataclass(frozen=True)
class Plane:
    """Points (N, 2) on the plane of the first two principal components, and each axis's share of the variance."""

    points: Floats
    shares: tuple[float, float]


def principal_plane(vectors_ND: Floats) -> Plane:
    """Principal components (Pearson 1901): the singular vectors of the centred data with the largest singular values.

    The largest coordinate on each axis is made positive, so that equal vectors give equal maps.
    """
    centred_ND = vectors_ND.astype(np.float64) - vectors_ND.mean(axis=0)
    left_NR, values_R, _ = np.linalg.svd(centred_ND, full_matrices=False)
    points_N2 = (left_NR * values_R)[:, :2]
    points_N2 *= np.where(points_N2[np.abs(points_N2).argmax(axis=0), [0, 1]] < 0, -1, 1)
    first, second, *_ = values_R**2 / max((values_R**2).sum(), np.finfo(float).tiny)
    return Plane(points_N2, (float(first), float(second)))


@rc_context(STYLE)
def draw_map(vectors_ND: Floats, kinds: Sequence[str] | None, title: str, of: str) -> Figure:
    """Draw the principal plane of the vectors, coloured by the kind of each text."""
    plane = principal_plane(vectors_ND)
    figure = new_figure(title, 7.5, 5)
    axes = figure.add_subplot()
    frequent = [kind for kind, _ in Counter(kinds or ()).most_common(MOST_KINDS)]
    kinds_N = np.array([kind if kind in frequent else "" for kind in kinds or [""] * len(vectors_ND)])
    for index, kind in enumerate(frequent):
        points_N2, color, marker = plane.points[kinds_N == kind], COLOURS[index % len(COLOURS)], MARKERS[index % 8]
        axes.plot(*points_N2.T, marker, color=color, markersize=4.5, alpha=0.75, markeredgewidth=0, label=kind)
    if (others := kinds_N == "").any():
        label = f"{len(set(kinds)) - MOST_KINDS} others" if kinds else None
        axes.plot(*plane.points[others].T, "o", color="#bbbbbb", markersize=3, zorder=1, label=label)
    axes.set(
        xlabel=f"first principal component ({plane.shares[0]:.0%} of the variance)",
        ylabel=f"second principal component ({plane.shares[1]:.0%})",
    )
    axes.set_aspect("equal", adjustable="datalim")
    if kinds:
        figure.legend(title=of, loc="outside right center", alignment="left")
    return figure


def require_picture(file: Path) -> None:
    """ConfigError for a file of another format than PNG or SVG, by its name."""
    if file.suffix not in (".png", ".svg"):
        raise ConfigError("map", f"{file} is neither .png nor .svg", "end its name with one of them")


def write_map(file: Path, vectors_ND: Floats, kinds: Sequence[str] | None, title: str, of: str) -> None:
    """Write the map as PNG or SVG, by the file's name. ConfigError for other formats, and fewer than three texts."""
    require_picture(file)
    if len(vectors_ND) < 3:
        raise ConfigError("map", f"{len(vectors_ND)} texts are too few for a map", "give three or more")
    save_figure(draw_map(vectors_ND, kinds, title, of), file)

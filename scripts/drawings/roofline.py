"""How near the limit training and decoding are, from what `measure.py benchmark --record` wrote.

Remakes: docs/roofline.png
Takes: a second
Needs: `measure.py benchmark --record` before

Across: the operations that a step does for each byte that it must move. Up: the operations that it does per second.
The roof is what the machine does at most (measurements/roofline.py). A line joins the two programs at one shape; pairs
that would hide each other stand side by side.
"""

from math import atan2, degrees
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

from drawings.equations import BLUE, GREY, ORANGE
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measurements.benchmark import TRAINED
from results import ROOT, Entries, read

FILE = ROOT / "docs/roofline.png"
SMALL_MODEL = "4L d128"  # of the rows that name none
HALF = {"color": "#AAAAAA", "linewidth": 0.8, "linestyle": "--", "zorder": 1}  # of the roof
ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # a label hides the lines below it
SIDE_STEP = 1.1  # times as far to the right as the pair before
LEFT, RIGHT = 0.2, 4000  # of the figure, in operations per byte


def draw(*, to: Path = FILE) -> list[Path]:
    roofline(read()).savefig(to, dpi=150)
    return [to]


class Point(NamedTuple):
    """Operations per byte, and in units of 1e9 per second."""

    across: float
    up: float


class Pair(NamedTuple):
    """Two programs at one shape and in one format."""

    model: str
    ours: Point
    theirs: Point
    is_bf16: bool = False


def pair_of(model: str, limits: dict[str, float], *, is_bf16: bool = False) -> Pair:
    """From a row of the table of limits."""

    def point(megabytes: float, milliseconds: float) -> Point:
        return Point(1e3 * limits["GFLOP"] / megabytes, 1e3 * limits["GFLOP"] / milliseconds)

    ours = point(limits["MB"], limits["Pellucid (ms)"])
    return Pair(model, ours, point(limits["transformers (MB)"], limits["transformers (ms)"]), is_bf16)


def training_groups(rows: dict[str, dict[str, float]]) -> dict[str, list[Pair]]:
    """For each shape, the pair in bf16 and the one in fp32, under the label below them."""
    groups = {}
    for name, shape in TRAINED.items():
        if f"{name}bf16" in rows:
            model = name.removesuffix(", ") or SMALL_MODEL
            label = f"training\n{model}\n{shape.batch_size} × {shape.context_length}"
            formats = ("bf16", "fp32")
            groups[label] = [pair_of(model, rows[name + each], is_bf16=each == "bf16") for each in formats]
    return groups


def decoding_groups(rows: dict[str, dict[str, float]]) -> dict[str, list[Pair]]:
    """One sequence, and several, each by what stands below them: the models from left to right."""
    groups = {}
    for is_one, title in ((True, "decoding 1 sequence:"), (False, "decoding several:")):
        pairs = []
        for name, limits in rows.items():
            model, _, sequences = name.rpartition(", ")
            if (sequences == "1 sequence") == is_one:
                many = "" if is_one else f", {sequences.removesuffix(' sequences')}"
                pairs.append(pair_of((model or SMALL_MODEL) + many, limits))
        pairs.sort(key=lambda pair: pair.ours.across)
        groups["\n".join([title, *(pair.model for pair in pairs)])] = pairs
    return groups


def draw_group(axes: Axes, label: str, pairs: list[Pair]) -> None:
    """Side by side around their mean, and the label below the lowest."""
    middle = geometric_mean(pair.ours.across for pair in pairs)
    for i, pair in enumerate(pairs):
        aside = middle / pair.ours.across * SIDE_STEP ** (i - (len(pairs) - 1) / 2)
        ends = [(aside * across, up) for across, up in (pair.ours, pair.theirs)]
        axes.plot(*zip(*ends, strict=True), color=GREY, linewidth=1, zorder=2)
        for end, color, mark in zip(ends, (BLUE, ORANGE), ("o", "s"), strict=True):
            fill = color if pair.is_bf16 else "white"
            axes.plot(*end, mark, color=color, markerfacecolor=fill, markersize=6, markeredgewidth=1.4, zorder=3)
    lowest = min(point.up for pair in pairs for point in (pair.ours, pair.theirs))
    axes.text(middle, lowest / 1.35, label, ha="center", va="top", fontsize=8.5, bbox=ON_WHITE, zorder=1.5)


def draw_roof(axes: Axes, gb_per_second: float, gflops_per_second: dict[str, float]) -> None:
    """The slope of memory, and the flat peaks that it ends in."""
    highest = max(gflops_per_second.values())
    axes.plot([LEFT, highest / gb_per_second], [LEFT * gb_per_second, highest], color="black", linewidth=1.8)
    axes.plot([LEFT, highest / gb_per_second], [LEFT * gb_per_second / 2, highest / 2], **HALF)
    for name, peak in gflops_per_second.items():
        ridge = peak / gb_per_second
        axes.plot([ridge, RIGHT], [peak, peak], color="black", linewidth=1.8)
        axes.plot([ridge, RIGHT], [peak / 2, peak / 2], **HALF)
        label = f"{name}: {peak:,.0f} GFLOP/s"
        axes.text(0.9 * RIGHT, 1.08 * peak, label, fontsize=9, ha="right", bbox=ON_WHITE, zorder=1.5)


def write_along(axes: Axes, x: float, slope: float, text: str) -> None:
    """Above the line y = slope x, where the layout is known."""
    axes.figure.draw_without_rendering()
    (x0, y0), (x1, y1) = axes.transData.transform([(x, slope * x), (2 * x, 2 * slope * x)])
    angle = degrees(atan2(y1 - y0, x1 - x0))
    axes.text(x, 1.15 * slope * x, text, rotation=angle, rotation_mode="anchor", fontsize=9)


def roofline(entries: Entries) -> Figure:
    peaks = {name: row["GFLOP per second"] for name, row in entries["peak"]["figures"].items()}
    bandwidth = entries["bandwidth"]["figures"]["reading memory"]["GB per second"]
    decoding = decoding_groups(entries["decoding limits"]["figures"])
    training = training_groups(entries["training limits"]["figures"])

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots()
    axes.loglog()
    axes.set_xlim(LEFT, RIGHT)
    axes.set_ylim(min(pair.theirs.up for pairs in decoding.values() for pair in pairs) / 7, 2.5 * max(peaks.values()))
    draw_roof(axes, bandwidth, peaks)
    for label, pairs in (decoding | training).items():
        draw_group(axes, label, pairs)
    for name, mark, color, fill in (
        ("Pellucid", "o", BLUE, BLUE),
        ("transformers", "s", ORANGE, ORANGE),
        ("filled: in bf16", "o", GREY, GREY),
        ("hollow: in fp32", "o", GREY, "white"),
    ):
        axes.plot([], [], mark, color=color, markerfacecolor=fill, markersize=6, markeredgewidth=1.4, label=name)
    axes.plot([], [], **HALF, label="half of the roof")
    axes.legend(frameon=False, loc="lower right")
    axes.set_xlabel("operations per byte that a step must move")
    axes.set_ylabel("GFLOP per second")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.grid(alpha=0.25)
    write_along(axes, 0.9, bandwidth, f"reading memory: {bandwidth:.0f} GB/s")
    return figure

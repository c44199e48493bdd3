"""The figures of docs/many_machines.md: what each kind of parallelism cuts, and what it sends.

Remakes: docs/many_machines/*.png
Takes: 3 seconds
Needs: nothing
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drawings.equations import BLUE, GREEN, GREY, ORANGE, PINK, save_all
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from results import ROOT

FOLDER = ROOT / "docs/many_machines"
DEVICES = [BLUE, ORANGE, GREEN, PINK]  # one colour each, in all figures


def draw(*, folder: Path = FOLDER) -> Iterator[Path]:
    yield from save_all((cuts, data, sharded, tensor, experts), folder)


def paper(figure: Figure, width: float, height: float) -> Axes:
    """To draw on, from (0, 0) at the bottom left."""
    axes = figure.subplots()
    axes.set_xlim(-0.1, width + 0.1)
    axes.set_ylim(-0.1, height)
    axes.axis("off")
    return axes


def box(
    axes: Axes, corner: tuple[float, float], size: tuple[float, float], colour: str, text: str = "", shade: float = 0.3
) -> None:
    axes.add_patch(Rectangle(corner, *size, facecolor="white", lw=0))
    axes.add_patch(Rectangle(corner, *size, facecolor=colour, alpha=shade, lw=0))
    axes.add_patch(Rectangle(corner, *size, facecolor="none", edgecolor=colour, lw=1))
    note(axes, corner[0] + size[0] / 2, corner[1] + size[1] / 2, text)


def note(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    axes.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": 8.5, **options})


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = GREY, **options: Any) -> None:
    looks = {"arrowstyle": "-|>", "mutation_scale": 9, "lw": 1.2, "shrinkA": 1, "shrinkB": 1, **options}
    axes.add_patch(FancyArrowPatch(start, end, color=colour, **looks))


def cuts() -> Figure:
    """A batch of eight rows and a model of four blocks on four devices: who has what."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    panels = {
        "data": "rows shared out,\nweights copied",
        "sharded": "rows shared out,\nevery tensor cut",
        "tensor": "all rows everywhere,\nevery matrix cut",
        "pipeline": "all rows pass through,\nblocks shared out",
        "expert": "rows and experts shared\nout, the rest copied",
    }
    for axes, (name, caption) in zip(figure.subplots(1, 5), panels.items(), strict=True):
        axes.set_title(name, loc="center")
        axes.set_xlim(0, 4.4)
        axes.set_ylim(-1.6, 8)
        axes.axis("off")
        note(axes, 2.2, -1.1, caption)
        for row in range(8):
            everywhere = name in ("tensor", "pipeline")
            colour, shade = (GREY, 0.12) if everywhere else (DEVICES[row // 2], 0.5)
            box(axes, (0.2, 7.5 - 0.3 * row), (4, 0.22), colour, shade=shade)
        for block in range(4):
            y = 3.75 - 1.25 * block
            if name == "pipeline":
                box(axes, (0.2, y), (4, 1), DEVICES[block], f"block {block + 1}")
            for device, colour in enumerate(DEVICES):
                if name == "data":
                    box(axes, (0.2 + 0.22 * device, y + 0.18 - 0.06 * device), (3.34, 0.82), colour)
                elif name == "sharded":
                    box(axes, (0.2, y + 0.75 - 0.25 * device), (4, 0.25), colour)
                elif name == "tensor":
                    box(axes, (0.2 + device, y), (1, 1), colour)
                elif name == "expert":
                    box(axes, (0.2 + 0.22 * device, y + 0.73 - 0.04 * device), (3.34, 0.27), colour)
                    box(axes, (0.2 + 1.03 * device, y), (0.91, 0.5), colour)
        if name == "data":
            note(axes, -0.2, 6.4, "batch", rotation=90)
            note(axes, -0.2, 2.3, "four blocks", rotation=90)
    return figure


def data() -> Figure:
    """One update on four devices: equation 16, shared out."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = paper(figure, 24, 8)
    sums = [(812, 420), (655, 318), (930, 487), (743, 375)]
    total_nats, total = (sum(column) for column in zip(*sums, strict=True))
    for device, (colour, (nats, targets)) in enumerate(zip(DEVICES, sums, strict=True)):
        x = 1.1 + 5.8 * device
        note(axes, x + 2.2, 7.7, f"device {device}", color=colour, weight="bold", fontsize=10)
        box(axes, (x, 6.2), (4.4, 0.9), colour, f"its rows: {targets} targets", shade=0.5)
        arrow(axes, (x + 2.2, 6.2), (x + 2.2, 5.4))
        box(axes, (x, 4.1), (4.4, 1.3), colour, f"all weights;\nloss: {nats} nats / {total:,}", shade=0.25)
        arrow(axes, (x + 2.2, 4.1), (x + 2.2, 3.3))
        arrow(axes, (x + 2.2, 2.1), (x + 2.2, 1.3))
        box(axes, (x, 0), (4.4, 1.3), colour, "the whole gradient,\nthe same update", shade=0.25)
    box(axes, (1.1, 2.1), (21.8, 1.2), GREY, shade=0.12)
    whole = f"the gradient of {total_nats:,} nats / {total:,}"
    note(axes, 12, 2.7, f"all-reduce: the gradients are added; every device gets the sum, {whole}", fontsize=10)
    return figure


def sharded() -> Figure:
    """One update of a model with three blocks, as one device sees it: a block is whole only while it works."""
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    axes = paper(figure, 37.4, 8.4)
    note(axes, 37.4, 0.0, "time ─►", ha="right", color=GREY)
    gathers = [(1, 0), (2, 2), (3, 5), (3, 11), (2, 13), (1, 18)]
    scatters = [(3, 20), (2, 23), (1, 28)]
    work = [("forward", 1, 2, 3), ("forward", 2, 5, 3), ("forward", 3, 8, 3)]
    work += [("backward", 3, 13, 5), ("backward", 2, 18, 5), ("backward", 1, 23, 5)]
    left = 5.2
    for name, y in [("network", 7.3), ("computing", 5.5)]:
        note(axes, left - 0.4, y, name, ha="right", fontsize=9.5)
    for block, start in gathers:
        box(axes, (left + start, 6.7), (2, 1.2), DEVICES[block - 1], f"gather\n{block}")
    for block, start in scatters:
        box(axes, (left + start, 6.7), (2, 1.2), DEVICES[block - 1], f"scatter\n{block}", shade=0.8)
    for name, block, start, length in work:
        shade = 0.3 if name == "forward" else 0.6
        box(axes, (left + start, 4.9), (length, 1.2), DEVICES[block - 1], f"{name} {block}", shade)
        gathered = max(begin for which, begin in gathers if which == block and begin < start) + 2
        y = 3.1 - 1.3 * (block - 1)
        box(axes, (left + gathered, y), (start + length - gathered, 0.9), DEVICES[block - 1])
    box(axes, (left + 30, 4.9), (2.2, 1.2), GREY, "update", shade=0.12)
    for block in (1, 2, 3):
        y = 3.1 - 1.3 * (block - 1)
        note(axes, left - 0.4, y + 0.45, f"block {block} whole", ha="right", fontsize=9.5)
        axes.plot([left, left + 32.2], [y, y], color="#dddddd", lw=0.8, zorder=0)
    return figure


def tensor() -> Figure:
    """A block on two devices. Coloured: the part of each matrix that the device has."""
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    axes = paper(figure, 39, 11)
    for device, (colour, y) in enumerate(zip(DEVICES[:2], (6.4, 1.2), strict=True)):
        middle = y + 1.5
        note(axes, 0.2, middle, f"device {device}", color=colour, weight="bold", fontsize=10, ha="left")
        steps = [  # x, width, name, how it is cut
            (8.0, "$W_Q, W_K, W_V$", "outputs"),
            (13.2, "its heads", "whole"),
            (18.0, "$W_O$", "inputs"),
            (27.6, "$W_1$", "outputs"),
            (32.4, "$W_2$", "inputs"),
        ]
        for x, name, cut in steps:
            box(axes, (x, y), (3, 3), GREY if cut != "whole" else colour, shade=0.05 if cut != "whole" else 0.3)
            if cut == "outputs":
                box(axes, (x, y + 1.5 - 1.5 * device), (3, 1.5), colour, shade=0.5)
            elif cut == "inputs":
                box(axes, (x + 1.5 * device, y), (1.5, 3), colour, shade=0.5)
            note(axes, x + 1.5, y + 3.5, name, fontsize=9)
            if device == 1:
                note(axes, x + 1.5, y - 0.5, "whole" if cut == "whole" else f"cut by {cut}", color=GREY)
        for x in (5.0, 24.0):
            note(axes, x + 0.6, middle, "$x$", fontsize=11)
            arrow(axes, (x + 1.2, middle), (x + 3.0 if x < 20 else 27.6, middle))
        for start, end in [(11, 13.2), (16.2, 18), (30.6, 32.4)]:
            arrow(axes, (start, middle), (end, middle))
        for x in (21, 35.4):
            arrow(axes, (x, middle), (x + 1.25, 5.9 if device == 0 else 4.9))
        arrow(axes, (22.9, 5.9 if device == 0 else 4.9), (24.1, middle + (-0.6 if device == 0 else 0.6)))
        arrow(axes, (37.2, 5.9 if device == 0 else 4.9), (38.4, middle + (-0.6 if device == 0 else 0.6)))
    for x in (22.5, 36.8):
        note(axes, x, 5.4, "+", fontsize=14, weight="bold")
        note(axes, x - 1.3, 5.65, "all-reduce", ha="right", fontsize=9)
    return figure


def experts() -> Figure:
    """One layer, one choice per token: who asks whom, across the border between two devices."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    axes = paper(figure, 24, 10.4)
    tokens = {"The": 1, "fox": 0, "saw": 2, "a": 1, "crow": 3, "Otto": 0, "gave": 2, "her": 3, "two": 0, "figs": 3}
    axes.plot([0, 24], [4.9, 4.9], color=GREY, lw=1, ls=(0, (4, 3)), zorder=0)
    for device, (colour, top) in enumerate(zip(DEVICES[:2], (9.2, 4.1), strict=True)):
        note(axes, 0.1, top - 1.9, f"device {device}", color=colour, weight="bold", fontsize=10, rotation=90)
        for expert in (2 * device, 2 * device + 1):
            box(axes, (10.2, top - 1.1 - 2.3 * (expert % 2)), (3.6, 1.5), colour, f"expert {expert}")
    for place, (token, expert) in enumerate(tokens.items()):
        device, line = divmod(place, 5)
        y = (9.2, 4.1)[device] - 0.9 * line
        at_expert = (9.2, 4.1)[expert // 2] - 0.35 - 2.3 * (expert % 2)
        sent = expert // 2 != device
        looks = {"lw": 1.6, "alpha": 1.0} if sent else {"lw": 1.0, "alpha": 0.35}
        box(axes, (1.6, y - 0.35), (2, 0.7), DEVICES[device], token, shade=0.4)
        box(axes, (20.4, y - 0.35), (2, 0.7), DEVICES[device], token, shade=0.4)
        arrow(axes, (6.1, y), (10.2, at_expert), DEVICES[device], **looks)
        arrow(axes, (13.8, at_expert), (20.4, y), DEVICES[device], **looks)
        axes.plot([3.6, 4.4], [y, y], color=GREY, lw=1)
        box(axes, (4.4, y - 0.35), (1.7, 0.7), GREY, f"─► {expert}", shade=0.08)
    columns = ("tokens", "router", "all-to-all", "experts", "all-to-all", "tokens")
    for x, text in zip((2.6, 5.25, 8.2, 12, 17, 21.4), columns, strict=True):
        note(axes, x, 10.1, text, fontsize=9.5)
    return figure

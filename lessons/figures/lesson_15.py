"""The figures of lesson 15."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lesson_10 import WORDS, all_fables, drawn_fables, encoded, nats_of, nats_without_looking_back, new_decoder
from lesson_15 import (
    bubble_share,
    largest_stable_rate,
    most_kept,
    one_forward_one_backward,
    pipeline_schedule,
    ring_all_reduce,
    stale_step,
    train_together,
)

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#3f8f5f", "#777777"
SHADES = ["white", "#dbe6f4", "#a9c4e6", "#6f9bd3", "#3b6fb6"]


def ring() -> Figure:
    """Four devices in a ring, after each of six rounds: of how many devices' numbers a chunk is the sum."""
    n = 4
    rounds = _rounds_of_the_ring(n)
    figure, all_axes = plt.subplots(2, 3, figsize=(9.4, 6.6), layout="constrained")
    places = [(-1, 1), (1, 1), (1, -1), (-1, -1)]  # clockwise
    for k, (axes, (sent, held)) in enumerate(zip(all_axes.flat, rounds, strict=True)):
        for i, (x, y) in enumerate(places):
            for chunk in range(n):
                left, low = x - 0.5 + chunk / 4, y - 0.14
                is_new = chunk == sent[i - 1]
                axes.add_patch(
                    Rectangle(
                        (left, low), 0.25, 0.28, fc=SHADES[held[i][chunk]], ec=ORANGE if is_new else "#999999",
                        lw=2.2 if is_new else 0.8, zorder=4 if is_new else 3,
                    )
                )  # fmt: skip
                colour = "white" if held[i][chunk] > 2 else "black"
                at = (left + 0.125, y)
                axes.text(*at, held[i][chunk], ha="center", va="center", fontsize=11, color=colour, zorder=5)
                if k < 1 and i < 2:
                    axes.text(left + 0.125, y + 0.2, chunk, ha="center", va="bottom", fontsize=8, color=GREY)
            axes.text(x, y + (0.46 if y > 0 else -0.3), f"device {i}", ha="center", va="center", fontsize=9, color=GREY)
            (x_next, y_next) = places[(i + 1) % n]
            if y == y_next:
                start, end = (x + 0.55 * (x_next - x) / 2, y), (x_next - 0.55 * (x_next - x) / 2, y)
                at = ((x + x_next) / 2, y + 0.16)
            else:
                start, end = (x, y + 0.2 * (y_next - y) / 2), (x, y_next - 0.2 * (y_next - y) / 2)
                at = (x + 0.13 * np.sign(x) * -1, 0)
            arrow = {"arrowstyle": "-|>", "color": ORANGE, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", end, start, arrowprops=arrow)
            side = "center" if y == y_next else "left" if x < 0 else "right"
            axes.text(*at, f"chunk {sent[i]}", ha=side, va="center", fontsize=9, color=ORANGE)
        axes.set_title(f"after round {k + 1}: what arrives is {'added' if k < n - 1 else 'kept'}", fontsize=11)
        axes.set(xlim=(-1.65, 1.65), ylim=(-1.5, 1.65), aspect="equal")
        axes.axis("off")
    return figure


def _rounds_of_the_ring(n: int) -> list[tuple[list[int], list[list[int]]]]:
    """For each round: the chunk that each device sends, and the number of addends of each chunk afterwards.

    Number c n + i of each chunk is 1 in chunk c of device i, so a message tells which chunk it is and whose it has.
    """
    held = [[1] * n for _ in range(n)]
    rounds: list[tuple[list[int], list[list[int]]]] = []

    def pass_right(messages):
        sent = [int(np.flatnonzero(message)[0]) // n for message in messages]
        for i in range(n):
            arrived = int(messages[i - 1].sum())
            held[i][sent[i - 1]] = arrived + (1 if len(rounds) < n - 1 else 0)
        rounds.append((sent, [list(each) for each in held]))
        return [messages[i - 1].copy() for i in range(n)]

    chunks = [np.zeros((n, n * n)) for _ in range(n)]
    for i in range(n):
        chunks[i][range(n), np.arange(n) * n + i] = 1
    ring_all_reduce(chunks, pass_right)
    return rounds


def pipeline() -> Figure:
    """Three timetables of four stages: a whole batch, six micro-batches in GPipe, and in 1F1B."""
    p, m = 4, 6
    whole = tuple(np.asarray(each) for each in pipeline_schedule(p, 1))
    rows = [
        (f"the batch as a whole: {bubble_share(p, 1):.0%} waiting (a slot here is six of those below)", whole, 18 / 8),
        (f"GPipe, {m} micro-batches: {bubble_share(p, m):.0%} waiting", pipeline_schedule(p, m), 1.0),
        (f"1F1B, {m} micro-batches: {bubble_share(p, m):.0%} waiting", one_forward_one_backward(p, m), 1.0),
    ]
    figure, all_axes = plt.subplots(3, 1, figsize=(9.2, 6.2), layout="constrained")
    for axes, (name, (forward, backward), width) in zip(all_axes, rows, strict=True):
        for slots, colour in ((forward, BLUE), (backward, ORANGE)):
            for (stage, j), slot in np.ndenumerate(slots):
                axes.add_patch(Rectangle((slot * width, stage - 0.44), width, 0.88, fc=colour, ec="white", lw=1.5))
                axes.text((slot + 0.5) * width, stage, j, ha="center", va="center", color="white", fontsize=10)
        length = (backward.max() + 1) * width
        axes.add_patch(Rectangle((0, -0.5), length, p, fc="#f0f0f0", ec="none", zorder=0))
        for stage, kept in enumerate(most_kept(forward, backward)):
            if width == 1:
                axes.text(length + 0.25, stage, f"keeps {kept}", va="center", fontsize=9, color=GREY)
        axes.set(xlim=(0, 20), ylim=(p - 0.4, -0.6), yticks=range(p), yticklabels=[f"stage {i}" for i in range(p)])
        axes.set_title(name, fontsize=11, loc="left")
        axes.set_xticks([])
        axes.tick_params(left=False)
        axes.spines[:].set_visible(False)
    all_axes[-1].set_xlabel("time →     blue: forward, orange: backward, grey: waiting", loc="left")
    return figure


def stale() -> Figure:
    """How theta moves on the loss theta²/2 with stale gradients; and the largest rate for each delay."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.7), layout="constrained")
    for delay, colour in ((0, GREEN), (1, BLUE), (2, GREY), (3, ORANGE)):
        history = [np.array(1.0)]
        for _ in range(40):
            history.append(stale_step(history, lambda theta: theta, 0.5, delay))
        left.plot(history, color=colour, lw=1.8, label=f"delay {delay}")
    left.axhline(0, color="#cccccc", lw=0.8, zorder=0)
    left.set(xlabel="step", ylabel="θ", ylim=(-3.2, 3.2), xlim=(0, 40.5), title="rate 0.5, loss θ²/2")
    left.legend(frameon=False, loc="lower left", ncols=2)
    delays = np.linspace(0, 10, 200)
    right.plot(delays, 2 * np.sin(np.pi / (2 * (2 * delays + 1))), color=BLUE, lw=1.5, label="formula")
    measured = [largest_stable_rate(d) for d in range(11)]
    right.plot(range(11), measured, "o", color=ORANGE, ms=6, label="found by simulation")
    right.axhline(0.5, color=GREY, ls="--", lw=1)
    right.text(10, 0.53, "the rate on the left", ha="right", va="bottom", color=GREY, fontsize=9)
    right.set(xlabel="delay, in steps", ylabel="largest rate", ylim=(0, 2.1), title="where descending ends")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def loads() -> Figure:
    """How many tokens each of eight experts gets from a fair router, as a share of the mean: few tokens, and many."""
    rng, capacity = np.random.default_rng(1), 1.25
    figure, all_axes = plt.subplots(1, 3, figsize=(9.4, 3.1), sharey=True, layout="constrained")
    for axes, n_tokens in zip(all_axes, (64, 1024, 16384), strict=True):
        shares = 8 * rng.multinomial(n_tokens, np.ones(8) / 8) / n_tokens
        axes.bar(range(8), shares, color=BLUE, width=0.8)
        axes.bar(range(8), np.maximum(shares - capacity, 0), bottom=capacity, color=ORANGE, width=0.8)
        axes.axhline(capacity, color=GREY, lw=1.2, ls="--")
        axes.set(
            title=f"{n_tokens:,} tokens", xlabel="expert", xticks=range(8), yticks=[0, 0.5, 1, 1.5], ylim=(0, 1.75)
        )
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("load, as a share of the mean")
    all_axes[-1].text(7.5, capacity + 0.04, "capacity 1.25", ha="right", va="bottom", color=GREY)
    return figure


def together() -> Figure:
    """The loss of one device and of two, from start to end, for trainings of the same batches."""
    fables = list(all_fables())
    rows = np.array([encoded(text) for text, _ in fables])
    p = np.array([probability for _, probability in fables])

    def losses(shares: list[int]) -> list[tuple[int, float]]:
        curve = []
        decoders = [new_decoder(len(WORDS), 32, 4, 2, 0) for _ in shares]

        def batches():
            for n, batch in enumerate(drawn_fables(np.random.default_rng(1), rows, p, 16)):
                if n % 4 == 0:
                    curve.append((n, float(p @ nats_of(decoders[-1], rows).value.mean(axis=1))))
                yield batch

        train_together(decoders, batches(), shares, 61, 0.01)
        return curve

    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.semilogy(*np.array(losses([16])).T, color=BLUE, lw=2, label="one device")
    axes.semilogy(*np.array(losses([11, 5])).T, "o", mfc="none", mec=ORANGE, ms=8, mew=1.6, label="device 1 of two")
    for level, name in (
        (nats_without_looking_back(rows, p), "without looking back"),
        (-(p @ np.log(p)) / 14, "the floor: half a bit"),
    ):
        axes.axhline(level, color=GREY, ls="--", lw=1)
        axes.text(1, level * 0.98, name, va="top", color=GREY, fontsize=10)
    axes.set(xlabel="updates", ylabel="nats per token", xlim=(-1, 62), ylim=(0.3, 4.6))
    axes.set_yticks([0.3, 0.5, 1, 2, 4], ["0.3", "0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure

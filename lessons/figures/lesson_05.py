"""The figures of lesson 5."""

from __future__ import annotations

import copy
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import pellucid
from lesson_05 import absmax, decode, log_of, nearest_level, next_words, round_to
from pellucid.adapters.quantized import NF4_VALUES, dequantized, linear_layers, quantized
from pellucid.inspection.explain import log_probabilities
from pellucid.inspection.knock_out import held_out_documents

BLUE, ORANGE, GREEN, GREY = "#3b6fb6", "#d9742b", "#3f9c6b", "#777777"


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_yticks([])


def lines() -> Figure:
    """All numbers from 0 on of the format with 3 bits of exponent and 2 of mantissa, and those near zero once more."""
    e, m = 3, 2
    numbers = np.array([decode(bits, e, m) for bits in range((2**e - 1) * 2**m)])
    figure, (whole, near) = plt.subplots(2, 1, figsize=(9.6, 3.3), layout="constrained")
    colours = [GREY, BLUE, ORANGE, GREEN]
    for axes, most in ((whole, 14.6), (near, 1.06)):
        for i, x in enumerate(numbers):
            if x <= most:
                binade = i // 2**m
                colour = GREY if binade == 0 else colours[1 + (binade - 1) % 3]
                axes.vlines(x, 0, 1, color=colour, lw=2.2)
        axes.axhline(0, color="#bbbbbb", lw=1)
        axes.set(xlim=(-0.012 * most, most), ylim=(0, 1.55))
        _bare(axes)
    whole.set_xticks([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14])
    for power, step in ((1, "1/4"), (2, "1/2"), (4, "1"), (8, "2")):
        whole.text(1.45 * power, 1.12, f"step {step}", ha="center", color=GREY, fontsize=9.5)
    whole.set_title("all numbers from 0 to 14 with 3 bits of exponent and 2 of mantissa", loc="left", fontsize=10.5)
    near.set_xticks([0, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 1 / 2, 1], ["0", "1/16", "1/8", "3/16", "1/4", "1/2", "1"])
    near.text(0.1, 1.12, "subnormal", ha="center", color=GREY, fontsize=9.5)
    near.text(0.36, 1.12, "the smallest normal numbers", ha="center", color=BLUE, fontsize=9.5)
    near.set_title("near zero", loc="left", fontsize=10.5)
    return figure


def ranges() -> Figure:
    """From the smallest to the largest number of five formats, on a logarithmic line."""
    formats = [
        ("float32", 8, 23, None),
        ("bfloat16", 8, 7, None),
        ("float16", 5, 10, None),
        ("float8, E5M2", 5, 2, None),
        ("float8, E4M3", 4, 3, 448.0),
    ]
    figure, axes = plt.subplots(figsize=(9.6, 3.0), layout="constrained")
    for row, (_, e, m, most) in enumerate(formats):
        bias = 2 ** (e - 1) - 1
        largest = np.log10(most) if most else (bias + 1) * np.log10(2)
        normal, smallest = (1 - bias) * np.log10(2), (1 - bias - m) * np.log10(2)
        axes.barh(-row, largest - normal, left=normal, height=0.55, color=BLUE)
        axes.barh(-row, normal - smallest, left=smallest, height=0.55, color="#b9cde8")
        axes.text(
            largest + 0.7, -row, f"relative error up to 1/{2 ** (m + 1):,}", va="center", color=GREY, fontsize=9.5
        )
    axes.set_yticks([-row for row in range(len(formats))], [name for name, *_ in formats])
    axes.set(xlim=(-47, 64))
    axes.set_xticks(
        range(-40, 41, 10), [f"$10^{{{power}}}$" if power else "1" for power in range(-40, 41, 10)], fontsize=10
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.text(-44.6, -0.45, "subnormal", color=GREY, fontsize=8.5, va="center")
    return figure


def sums() -> Figure:
    """Sums of ones, kept in three formats."""
    figure, axes = plt.subplots(figsize=(7.6, 3.6), layout="constrained")
    n = 3000
    axes.plot([0, n], [0, n], color="#bbbbbb", lw=1.2, ls="--")
    axes.text(2450, 2520, "the true sum", color=GREY, ha="right")
    for name, e, m, colour in (("float16", 5, 10, BLUE), ("bfloat16", 8, 7, ORANGE), ("float8, E5M2", 5, 2, GREEN)):
        totals = [0.0]
        for _ in range(n):
            totals.append(round_to(totals[-1] + 1.0, e, m))
        axes.plot(totals, color=colour, lw=2)
        axes.text(n + 30, totals[-1], f"{name}: {totals[-1]:,.0f}", color=colour, va="center")
    axes.set(xlabel="ones added", ylabel="sum", xlim=(0, n), ylim=(0, n))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


@cache
def _demo():
    run = pellucid.load("demo")
    corpus = run.trained.corpus()
    return run, corpus, held_out_documents(corpus, run.tokenizer, run.model.context_length, 16)


def gradient() -> Figure:
    """The sizes of the demo's slopes on four fables, at two scales, over what float16 can hold."""
    run, _, fables = _demo()
    total, n = 0.0, 0
    for fable in fables[:4]:
        logits = run.model(torch.tensor([fable.ids]))[0]
        total = total + torch.nn.functional.cross_entropy(logits, torch.tensor(fable.targets), reduction="sum")
        n += len(fable.targets)
    slopes = torch.autograd.grad(total / n, list(run.model.parameters()))
    sizes = np.log2(torch.cat([slope.flatten() for slope in slopes]).abs().clamp(min=2.0**-60).numpy())
    figure, panels = plt.subplots(2, 1, figsize=(9.6, 4.4), layout="constrained", sharex=True)
    for axes, scale in zip(panels, (0, 16), strict=True):
        lost = float((sizes + scale <= -25).mean())
        axes.axvspan(-45, -25, color="#f6ddcc")
        axes.axvspan(-25, -14, color="#eef3fa")
        axes.axvspan(16, 20, color="#f6ddcc")
        axes.hist(sizes + scale, bins=np.arange(-45, 21, 0.5), color=BLUE)
        axes.set_title(f"scale {2**scale:,}: {lost:.0%} of the slopes become 0", loc="left", fontsize=10.5)
        axes.set(xlim=(-45, 20))
        _bare(axes)
        top = 1.15 * axes.get_ylim()[1]
        axes.set_ylim(0, top)
        for x, text in ((-35, "become 0"), (-19.5, "subnormal"), (1, "normal"), (18, "infinite")):
            axes.text(x, 0.97 * top, text, ha="center", va="top", color=GREY, fontsize=9.5)
    ticks = range(-40, 21, 10)
    panels[1].set_xticks(ticks, [f"$2^{{{power}}}$" for power in ticks])
    panels[1].set_xlabel("size of a slope, times the scale")
    return figure


def outlier() -> Figure:
    """Weights with one outlier, with a constant for all of them and with one for each block."""
    random = np.random.default_rng(3)
    weights = (0.05 * random.standard_normal(4096)).astype(np.float32)
    weights[1000] = 10.0
    shown = slice(896, 1152)  # four blocks, the second of which has the outlier
    figure, panels = plt.subplots(2, 1, figsize=(9.6, 4.2), layout="constrained", sharex=True, sharey=True)
    titles = ("one constant for all 4,096: steps of 0.079", "a constant for each block of 64")
    for axes, block, title in zip(panels, (4096, 64), titles, strict=True):
        codes, constants = absmax(weights, block)
        rounded = codes * np.repeat(constants, block)
        places = np.arange(256)
        axes.scatter(places, weights[shown], s=9, color="#b5b5b5", label="weights")
        axes.scatter(places, rounded[shown], s=9, color=ORANGE if block == 4096 else BLUE, label="stored as")
        axes.set_title(title, loc="left", fontsize=10.5)
        axes.set(ylim=(-0.2, 0.2), xlim=(-2, 256))
        axes.annotate("10", (104, 0.197), (104, 0.12), ha="center", arrowprops={"arrowstyle": "->", "color": GREY})
        axes.spines[["top", "right"]].set_visible(False)
        for edge in (64, 128, 192):
            axes.axvline(edge - 0.5, color="#dddddd", lw=1)
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, handletextpad=0)
    panels[1].set_xticks([32, 96, 160, 224], ["block 14", "block 15", "block 16", "block 17"])
    panels[1].tick_params(axis="x", length=0)
    return figure


def levels() -> Figure:
    """The weights of a matrix, as shares of the largest in their block, and the levels for them."""
    matrix = _demo()[0].model.blocks[0].feed_forward.sublayer.W_1.weight.detach().numpy().reshape(-1, 64)
    shares = (matrix / np.abs(matrix).max(axis=1, keepdims=True)).ravel()
    figure, panels = plt.subplots(2, 1, figsize=(9.6, 4.4), layout="constrained", sharex=True)
    tables = (
        ("NF4: 16 levels, close together where the weights are", np.array(NF4_VALUES), BLUE),
        ("15 equal steps", np.linspace(-1, 1, 15), ORANGE),
    )
    for axes, (title, table, colour) in zip(panels, tables, strict=True):
        counts, _, _ = axes.hist(shares, bins=np.linspace(-1, 1, 121), color="#dddddd")
        axes.vlines(table, 0, 1.05 * counts.max(), color=colour, lw=1.8)
        used = np.bincount(nearest_level(shares, table), minlength=len(table)) / len(shares)
        for level, share in zip(table, used, strict=True):
            axes.text(level, 1.08 * counts.max(), f"{share:.0%}", ha="center", color=colour, fontsize=8.5)
        axes.set(ylim=(0, 1.25 * counts.max()), xlim=(-1.06, 1.06))
        axes.set_title(title, loc="left", fontsize=10.5)
        _bare(axes)
    panels[1].set_xlabel("weight / largest of its block")
    return figure


def cost() -> Figure:
    """What rounding the demo's matrices costs against the size of the errors, with the prediction."""
    run, corpus, fables = _demo()
    truth = np.concatenate(
        [
            p_TV[: len(fable.ids)]
            for p_TV, fable in zip(next_words(corpus, run.tokenizer, [f.text for f in fables]), fables, strict=True)
        ]
    )
    differ = (1 - (truth**2).sum(axis=1)).mean()

    def nats_above(model):
        log_q = np.concatenate([log_probabilities(model, fable.ids)[:, :-1] for fable in fables])
        return (truth * (log_of(truth) - log_q)).sum(axis=1).mean(), log_q

    above, log_demo = nats_above(run.model)
    figure, axes = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
    errors = np.geomspace(8e-4, 0.3, 50)
    axes.loglog(errors, errors**2 / 2 * differ, color="#bbbbbb", lw=1.5, label="predicted: ½ ε² (1 − Σp²)")
    axes.axhline(above, color=GREEN, lw=1.2, ls=":")
    axes.text(9e-4, 1.12 * above, "what the demo lacks in any case", color=GREEN, fontsize=9.5)
    for name, rounded in _ROUNDED.items():
        model = copy.deepcopy(run.model)
        difference, size = 0.0, 0.0
        with torch.no_grad():
            for layer in linear_layers(model).values():
                before = layer.weight.clone()
                layer.weight.copy_(rounded(before))
                difference, size = difference + ((layer.weight - before) ** 2).sum(), size + (before**2).sum()
        log_q = nats_above(model)[1]
        error = float((difference / size) ** 0.5)
        from_demo = (np.exp(log_demo) * (log_demo - log_q)).sum(axis=1).mean()
        added = (truth * (log_demo - log_q)).sum(axis=1).mean()
        axes.plot(error, from_demo, "o", color=BLUE, ms=6)
        if added > 1e-5:
            axes.plot(error, added, "x", color=ORANGE, ms=7)
        axes.annotate(name, (error, from_demo), (8, -11), textcoords="offset points", fontsize=9.5)
    axes.plot([], [], "o", color=BLUE, label="measured against the demo itself")
    axes.plot([], [], "x", color=ORANGE, label="measured against the grammar, from 10⁻⁵ on")
    axes.set(xlabel="relative error ε of a weight", ylabel="cost, nats per token", ylim=(8e-8, 1e-2))
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _as(to):
    return lambda weight: dequantized(quantized(weight, to), to, weight.numel()).view_as(weight)


_ROUNDED = {
    "bfloat16": lambda weight: weight.bfloat16().float(),
    "int8": _as("int8"),
    "float8, E4M3": lambda weight: weight.to(torch.float8_e4m3fn).float(),
    "float8, E5M2": lambda weight: weight.to(torch.float8_e5m2).float(),
    "NF4": _as("nf4"),
}

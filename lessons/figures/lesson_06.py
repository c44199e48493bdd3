"""The figures of lesson 6."""

from __future__ import annotations

import random

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import pellucid
from lesson_06 import byte_ids, encode, learn_merges, spellings
from pellucid.data.truth import nats_of
from pellucid.languages.fables import Fables
from pellucid.tokenizer.pieces import visible
from pellucid.tokenizer.train import train_byte_pairs

BLUE, ORANGE, GREY = "#3b6fb6", "#d9742b", "#777777"
END = ["<|endoftext|>"]


def _draw_tree(axes: Axes, word_ids: list[int], top: int, merges: dict[tuple[int, int], int]) -> None:
    """A token's tree: its bytes at the bottom, and above each two parts the token that they became."""
    parts_of = {new_id: pair for pair, new_id in merges.items()}
    names = [visible(spelling.decode("utf-8", "backslashreplace")) for spelling in spellings(merges)]
    n_placed = 0

    def place(i: int) -> tuple[float, float]:
        nonlocal n_placed
        if i in parts_of:
            ends = [place(part) for part in parts_of[i]]
            x, y = sum(end[0] for end in ends) / 2, max(end[1] for end in ends) + 1
            for end in ends:
                axes.plot([end[0], end[0], x], [end[1], y, y], color="#bbbbbb", lw=1.4, zorder=1)
            label, colour = f"{names[i]}\n#{i - 255}", BLUE
        else:
            x, y = float(n_placed), 0.0
            label, colour = names[i], "black"
            n_placed += 1
        box = {"boxstyle": "round,pad=0.25", "fc": "white", "ec": colour, "lw": 1.1}
        axes.text(x, y, label, ha="center", va="center", fontsize=10, color=colour, bbox=box, zorder=2)
        return x, y

    _, height = place(top)
    axes.set(xlim=(-0.6, len(word_ids) - 0.4), ylim=(-0.5, height + 0.5))
    axes.axis("off")


def ties() -> Figure:
    """The token abra by the two conventions: of equal counts the smallest ids, or the largest."""
    a, b, r = byte_ids("abr")
    conventions = {
        "smallest ids first: ab, ra, abra": learn_merges("abracadabra", 3),
        "largest ids first: ra, bra, abra": {(r, a): 256, (b, 256): 257, (a, 257): 258},
    }
    figure, both = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")
    for axes, (title, merges) in zip(both, conventions.items(), strict=True):
        assert encode("abra", merges) == [258]
        _draw_tree(axes, byte_ids("abra"), 258, merges)
        axes.set_title(title, fontsize=10.5)
    return figure


def tree() -> Figure:
    """The token of a word in the demo's vocabulary, with the number of each merge."""
    tokenizer = pellucid.load("demo").tokenizer
    [top] = tokenizer.encode(" hedgehog")
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    _draw_tree(axes, byte_ids(" hedgehog"), top, {pair: i for i, pair in tokenizer.merges.items()})
    return figure


def compression() -> Figure:
    """Bytes per token, and the floor per token and per fable, for vocabularies of 256 to 2,048 tokens."""
    fables = Fables(24)
    to_learn = [fables.write(random.Random(i)) for i in range(1000)]
    held_out = [fables.write(random.Random(10_000 + i)) for i in range(20)]
    n_bytes = len("".join(held_out).encode())
    sizes = [256, 272, 300, 350, 420, 512, 640, 768, 1024, 1280, 1536, 2048]
    lengths, totals = [], []
    for size in sizes:
        tokenizer = train_byte_pairs(to_learn, vocab_size=size + 1, special_tokens=END)
        nats = [nats_of(fables, tokenizer, fable) for fable in held_out]
        lengths.append(sum(map(len, nats)))
        totals.append(sum(map(sum, nats)))
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
    left.plot(sizes, n_bytes / np.array(lengths), "o-", color=BLUE)
    left.set(title="bytes per token", ylim=(0, 5))
    middle.plot(sizes, np.array(totals) / lengths, "o-", color=ORANGE)
    middle.set(title="floor: nats per token", ylim=(0, 0.6))
    right.plot(sizes, np.array(totals) / len(held_out), "o-", color=ORANGE)
    right.set(title="floor: nats per fable", ylim=(0, 95))
    for axes in (left, middle, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([256, 512, 1024, 2048])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
        axes.minorticks_off()
        axes.set_xlabel("tokens in the vocabulary")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def letters() -> Figure:
    """The true surprise at each letter, and at each of the demo's tokens, along the beginning of a fable."""
    fables, tokenizer = Fables(24), pellucid.load("demo").tokenizer
    fable = fables.write(random.Random(10_000))
    single = train_byte_pairs([fable], vocab_size=257, special_tokens=END)
    n_shown = fable.index(".") + 1
    figure, both = plt.subplots(2, 1, figsize=(11, 4.2), layout="constrained", sharex=True, sharey=True)
    for axes, cut, name in zip(both, (single, tokenizer), ("letters", "tokens of the demo"), strict=True):
        place, total = 0, 0.0
        for token, nats in zip(cut.encode(fable), nats_of(fables, cut, fable), strict=False):
            length = len(cut.token_bytes(token))
            if place + length > n_shown:
                break
            axes.bar(place, nats, width=length - 0.12, align="edge", color=BLUE if cut is single else ORANGE)
            axes.axvline(place - 0.06, color="#eeeeee", lw=0.8, zorder=0)
            place, total = place + length, total + nats
        axes.set_title(f"{name}: {total:.2f} nats", loc="left", fontsize=10.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("nats")
        axes.set_xticks(np.arange(n_shown) + 0.44, fable[:n_shown].replace(" ", "␣"), fontsize=9)
        axes.tick_params(axis="x", length=0, labelbottom=True)
        axes.set_xlim(-0.3, n_shown)
    return figure

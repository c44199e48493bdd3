"""The figures of docs/equations.md, drawn with the functions that they explain.

Remakes: docs/equations/*.png
Takes: 3 seconds
Needs: nothing
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import ROOT
from torch import Tensor

from pellucid.figures import PALETTE, STYLE
from pellucid.generation.sampling import apply_temperature, keep_top_p
from pellucid.model.attention import causal_mask
from pellucid.model.positions import Rotary, Sinusoidal
from pellucid.training.muon import NEWTON_SCHULZ_STEPS, A, B, C
from pellucid.training.schedules import constant, cosine, warmup_stable_decay

FOLDER = ROOT / "docs/equations"
BLUE, ORANGE, GREEN, PINK, *_, GREY = PALETTE
TITLES_AND_FORMULAS = {"axes.titlelocation": "left", "text.parse_math": True}


def draw(*, folder: Path = FOLDER) -> Iterator[Path]:
    yield from save_all((attention, positions, activations, schedules, newton_schulz, sampling), folder)


def save_all(figures: Iterable[Callable[[], Figure]], folder: Path) -> Iterator[Path]:
    """Each by the name of its function."""
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE | TITLES_AND_FORMULAS):
        for figure in figures:
            file = folder / f"{figure.__name__}.png"
            figure().savefig(file, dpi=150, metadata={"Software": None})
            yield file


def attention() -> Figure:
    """Scores, mask and weights of one head over five tokens: equations 7 and 8."""
    tokens = ["Bella", "saw", "Otto", "and", "she"]
    scores_TS = torch.tensor(
        [
            [1.0, 0.2, 0.8, 0.1, 1.2],
            [2.1, 0.4, 1.9, 0.0, 0.6],
            [0.9, 1.6, 0.7, 0.2, 0.4],
            [0.6, 1.5, 1.2, 0.1, 0.9],
            [2.6, 0.3, 0.9, 0.2, 0.5],
        ]
    )
    mask_TS = causal_mask(5, 5, like=scores_TS)
    weights_TS = (scores_TS + mask_TS).softmax(dim=-1)
    figure = Figure(figsize=(9.6, 3.5), layout="constrained")
    panels = [
        ("scores: what each query looks for", scores_TS, "Blues", 0, ".1f"),
        ("+ mask: no looking ahead", mask_TS.clamp(min=-1), "Greys_r", -2, "mask"),
        ("softmax: each row sums to 1", weights_TS, "Blues", 0, ".2f"),
    ]
    for axes, (title, shades_TS, colours, darkest, written) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.imshow(shades_TS.numpy(), cmap=colours, vmin=darkest)
        axes.set_title(title)
        axes.set_xticks(range(5), tokens)
        axes.set_yticks(range(5), tokens)
        axes.set_xlabel("key: the token that is read")
        axes.grid(False)
        axes.spines[:].set_visible(False)
        for t, s in itertools.product(range(5), range(5)):
            shade = shades_TS[t, s].item()
            text = ("−∞" if shade else "0") if written == "mask" else f"{shade:{written}}"
            on_dark = shade > 0.6 * shades_TS.max()
            axes.text(s, t, text, ha="center", va="center", color="white" if on_dark else "black", fontsize=9)
    figure.axes[0].set_ylabel("query: the token that reads")
    return figure


def positions() -> Figure:
    """The clocks of equation 4 as a table, and the rotations of equation 5."""
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    left, *circles = figure.subplots(1, 3, width_ratios=[1.5, 1, 1])
    table_TD = Sinusoidal(context_length=64, d_model=32).table_TD
    image = left.imshow(table_TD.T.numpy(), aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
    left.set_title("sinusoidal: 16 clocks, fast to slow")
    left.set_xlabel("position t")
    left.set_ylabel("coordinate")
    left.grid(False)
    figure.colorbar(image, ax=left, ticks=[-1, 0, 1])

    rotary = Rotary(context_length=16, head_width=2, base=10_000.0)
    query, key = torch.tensor([1.0, 0.0]), torch.tensor([0.35, 0.8])
    for axes, (t, s) in zip(circles, [(2, 1), (4, 3)], strict=True):
        turned_query = rotary.rotate(query.view(1, 1, 1, 2), start=t).flatten()
        turned_key = rotary.rotate(key.view(1, 1, 1, 2), start=s).flatten()
        axes.set_title(f"RoPE: query at {t}, key at {s}")
        for vector, before, name, colour in [
            (turned_query, query, f"query, turned {t} rad", BLUE),
            (turned_key, key, f"key, turned {s} rad", ORANGE),
        ]:
            for tip, alpha in ((before, 0.3), (vector, 1)):
                looks = {"arrowstyle": "->", "color": colour, "alpha": alpha, "lw": 2}
                axes.annotate("", tip.tolist(), (0, 0), arrowprops=looks)
            axes.plot([], [], color=colour, label=name)
        axes.plot([], [], " ", label=f"product {(turned_query @ turned_key).item():.3f}: the same")
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), xticks=[-1, 0, 1], yticks=[-1, 0, 1], aspect="equal")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), handlelength=1)
    return figure


def activations() -> Figure:
    """The activations of equations 11 and 22, and their slopes."""
    functions: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
        ("ReLU", F.relu, GREY),
        ("GELU", F.gelu, BLUE),
        ("SiLU", F.silu, GREEN),
        ("ReLU²", lambda x: F.relu(x).square(), ORANGE),
    ]
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    value_axes, slope_axes = figure.subplots(1, 2)
    for name, function, colour in functions:
        x = torch.linspace(-4, 2.2, 621).requires_grad_()
        y = function(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        value_axes.plot(x.detach().numpy(), y.detach().numpy(), color=colour, label=name)
        slope_axes.plot(x.detach().numpy(), slope.numpy(), color=colour, label=name)
    value_axes.set_title("activation")
    slope_axes.set_title("its slope, which multiplies the gradient on the way back")
    for axes in (value_axes, slope_axes):
        axes.set_xlabel("input")
    value_axes.set_ylim(-0.5, 3)
    slope_axes.set_ylim(-0.3, 3)
    value_axes.legend(loc="upper left")
    return figure


def schedules() -> Figure:
    """The three learning-rate schedules of equation 26."""
    steps, warmup_steps = 1000, 100
    ends = {"steps": steps, "warmup_steps": warmup_steps, "final_lr_fraction": 0.1}
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, colour, factor in [
        ("constant", GREY, lambda step: constant(step, warmup_steps=warmup_steps)),
        ("warmup_stable_decay", GREEN, lambda step: warmup_stable_decay(step, decay_fraction=0.3, **ends)),
        ("cosine", BLUE, lambda step: cosine(step, **ends)),
    ]:
        axes.plot(range(steps), [factor(step) for step in range(steps)], color=colour, label=name)
    axes.axvspan(0, warmup_steps, color="#f2f2f2", zorder=0)
    axes.text(1.1 * warmup_steps, 0.03, "← warmup", color=GREY)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("step")
    axes.set_ylabel("share of the peak learning rate")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 0.1))
    return figure


def newton_schulz() -> Figure:
    """A singular value after each iteration of equation 29."""
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    start = torch.logspace(-3, 0, 400).numpy()
    axes.plot(start, start, color=GREY, ls=(0, (4, 3)), label="0")
    values = start
    for iteration in range(1, NEWTON_SCHULZ_STEPS + 1):
        values = A * values + B * values**3 + C * values**5
        done = iteration / NEWTON_SCHULZ_STEPS
        axes.plot(start, values, color=BLUE, alpha=done, lw=2 if done == 1 else 1, label=f"{iteration}")
    axes.axhline(1, color="black", lw=0.8)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.3)
    axes.set_xlabel("singular value before")
    axes.set_ylabel("singular value after")
    axes.legend(title="iterations", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def sampling() -> Figure:
    """Temperature and the two cuts on one distribution: equations 19 and 20."""
    tokens = ["fox", "crow", "hare", "owl", "wolf", "frog", "lion", "mole"]
    logits_V = torch.tensor([2.6, 1.9, 1.5, 0.9, 0.4, 0.0, -0.6, -1.2])
    tempered = [(f"temperature {alpha:g}", apply_temperature(logits_V[None], alpha)) for alpha in (0.5, 1.0, 2.0)]
    top_k = logits_V.masked_fill(torch.arange(8) >= 3, float("-inf"))[None]
    panels = [*tempered, ("top_k 3", top_k), ("top_p 0.9", keep_top_p(logits_V[None], 0.9))]
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    row: list[Axes] = list(figure.subplots(1, 5, sharey=True))
    for axes, (title, logits_1V) in zip(row, panels, strict=True):
        axes.barh(tokens, logits_1V.softmax(dim=-1)[0].numpy(), color=BLUE if "temp" in title else ORANGE)
        axes.barh(tokens, logits_V.softmax(dim=-1).numpy(), color="none", edgecolor=GREY, lw=0.8)
        axes.set_title(title)
        axes.set_xlim(0, 0.8)
        axes.grid(axis="y")
    row[0].invert_yaxis()
    figure.supxlabel("probability (outline: as the model gives it)", fontsize=10)
    return figure

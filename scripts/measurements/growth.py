"""The cost of a training step as the context grows, and as the width of the model grows.

Remakes: growth
Takes: 3 minutes
Needs: transformers

Each point is the median of several turns of the benchmark's training at 8,192 tokens a step, Pellucid and transformers
taking turns, both under bf16 autocast where the hardware computes in bf16.
"""

from collections.abc import Iterator
from pathlib import Path

from drawings.equations import BLUE, ORANGE
from matplotlib.figure import Figure
from measurements.rivals import Shape, compare, hugging_face_training, pellucid_training
from results import Entry, number_format

from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.runtime.precision import resolve_precision

TOKENS_A_STEP = 8192
CONTEXTS = [64, 128, 256, 512, 1024, 2048]
WIDTHS = [64, 128, 256, 512]
TICKS = [3_000, 10_000, 30_000, 100_000]


def measure(*, pairs: int = 3, pictures: Path | None = None) -> Iterator[Entry]:
    """--pictures docs: draws the speeds."""
    keep_freed_memory()
    precision = resolve_precision("auto", "auto")
    shapes = {f"context {length}": shape_of(context_length=length) for length in CONTEXTS}
    shapes |= {f"width {width}": shape_of(d_model=width) for width in WIDTHS}
    figures = {
        name: compare(pellucid_training(shape, precision), hugging_face_training(shape, precision), pairs)
        for name, shape in shapes.items()
    }
    if pictures:
        speeds(figures, number_format()).savefig(pictures / "growth.png", dpi=150)
    yield Entry("growth", figures)


def shape_of(*, context_length: int = 256, d_model: int = 128) -> Shape:
    """Heads are 64 wide, and there are as many tokens in a step whatever the context."""
    rows = TOKENS_A_STEP // context_length
    return Shape(rows, context_length, vocab_size=65, d_model=d_model, n_heads=d_model // 64)


def speeds(figures: dict[str, dict[str, float]], numbers: str) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = list(figure.subplots(1, 2, sharey=True))
    labels = {"context": "context length (tokens), at width 128", "width": "width of the model, at context 256"}
    for axes, (kind, label) in zip(panels, labels.items(), strict=True):
        rows = {int(name.split()[1]): row for name, row in figures.items() if name.startswith(kind)}
        for name, mark, color in (("Pellucid", "o-", BLUE), ("transformers", "s--", ORANGE)):
            axes.loglog(list(rows), [row[name] for row in rows.values()], mark, color=color, label=name)
        axes.set_xticks(list(rows), [f"{size:,}" for size in rows])
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[0].set_yticks(TICKS, [f"{tick:,}" for tick in TICKS])
    panels[0].set_ylabel("training, tokens per second")
    panels[0].legend(frameon=False)
    figure.suptitle(f"4 layers, heads of 64, 8,192 tokens a step, {numbers}", fontsize=10)
    return figure

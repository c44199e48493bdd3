"""How the cost of a training step grows with the context and with the width of the model, as a figure.

    python scripts/plot_growth.py docs/growth.png

Each point is the median of several turns of the benchmark's training at 8,192 tokens a step, Pellucid and transformers
taking turns, both under bf16 autocast where the hardware computes in bf16.
"""

from __future__ import annotations

from pathlib import Path

import transformers
from matplotlib.figure import Figure
from results import parser, print_table, record
from rivals import Shape, compare, hugging_face_training, pellucid_training

from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.runtime.precision import resolve_precision

TOKENS_A_STEP = 8192
CONTEXTS = [64, 128, 256, 512, 1024, 2048]
WIDTHS = [64, 128, 256, 512]
BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by colour-blind eyes too (Okabe and Ito)


def shape_of(*, context_length: int = 256, d_model: int = 128) -> Shape:
    return Shape(
        batch_size=TOKENS_A_STEP // context_length,
        context_length=context_length,
        vocab_size=65,
        d_model=d_model,
        n_heads=d_model // 64,
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("figure", type=Path)
    arguments.add_argument("--pairs", type=int, default=3)
    options = arguments.parse_args()
    transformers.logging.set_verbosity_error()
    keep_freed_memory()
    precision = resolve_precision("auto", "auto")

    def measured(shape: Shape) -> dict[str, float]:
        turns = pellucid_training(shape, precision), hugging_face_training(shape, precision)
        return dict(zip(("Pellucid", "transformers", "ratio"), compare(*turns, options.pairs), strict=True))

    by_context = {f"context {length}": measured(shape_of(context_length=length)) for length in CONTEXTS}
    by_width = {f"width {width}": measured(shape_of(d_model=width)) for width in WIDTHS}
    print_table("growth", by_context | by_width)
    if options.record:
        record("growth", by_context | by_width)

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, sizes, label, speeds in [
        (left, CONTEXTS, "context length (tokens), at width 128", by_context),
        (right, WIDTHS, "width of the model, at context 256", by_width),
    ]:
        for name, mark, color in (("Pellucid", "o-", BLUE), ("transformers", "s--", ORANGE)):
            axes.loglog(sizes, [speed[name] for speed in speeds.values()], mark, color=color, label=name)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    ticks = [3_000, 10_000, 30_000, 100_000]
    left.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    left.set_ylabel("training, tokens per second")
    left.legend(frameon=False)
    name = str(precision.dtype).removeprefix("torch.")
    figure.suptitle(
        f"4 layers, heads of 64, {TOKENS_A_STEP:,} tokens a step, {name} on {precision.device}", fontsize=10
    )
    figure.savefig(options.figure, dpi=150)


if __name__ == "__main__":
    main()

"""How the cost of a training step grows with the context and with the width of the model.

Remakes: growth
Takes: 3 minutes
Needs: transformers (then `draw.py growth` draws it)

Each point is the median of several turns of the benchmark's training at 8,192 tokens a step, Pellucid and transformers
taking turns, both under bf16 autocast where the hardware computes in bf16.
"""

from collections.abc import Iterator

from measurements.rivals import Shape, compare, hugging_face_training, pellucid_training
from results import Entry

from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.runtime.precision import resolve_precision

TOKENS_A_STEP = 8192
CONTEXTS = [64, 128, 256, 512, 1024, 2048]
WIDTHS = [64, 128, 256, 512]


def measure(*, pairs: int = 3) -> Iterator[Entry]:
    keep_freed_memory()
    precision = resolve_precision("auto", "auto")
    shapes = {f"context {length}": shape_of(context_length=length) for length in CONTEXTS}
    shapes |= {f"width {width}": shape_of(d_model=width) for width in WIDTHS}
    figures = {
        name: compare(pellucid_training(shape, precision), hugging_face_training(shape, precision), pairs)
        for name, shape in shapes.items()
    }
    yield Entry("growth", figures)


def shape_of(*, context_length: int = 256, d_model: int = 128) -> Shape:
    """Heads are 64 wide, and there are as many tokens in a step whatever the context."""
    rows = TOKENS_A_STEP // context_length
    return Shape(rows, context_length, vocab_size=65, d_model=d_model, n_heads=d_model // 64)

"""What one more token costs after 10 to 10,000 others: softmax attention, a sliding window, and linear attention.

    python scripts/measure_context.py docs/family/context.png

Time is that of writing a token, as `pellucid generate` does, with random weights; the three take turns, and a point is
the median over the turns. Memory is what the model keeps of a text of that length, counted.
"""

from __future__ import annotations

import copy
import statistics
import time
from pathlib import Path

import matplotlib
import torch
from results import parser, print_table, record

from pellucid.config.model import DecoderConfig, SlidingWindowConfig
from pellucid.cost.meter import state_bytes
from pellucid.experiments.figures.axis_numbers import log_axis, log_limits
from pellucid.experiments.figures.style import STYLE, EndLabel, label_ends, line_style, new_figure
from pellucid.generation.single_token import SingleTokenDecoder
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import resolve_precision

LENGTHS = [10, 30, 100, 300, 1_000, 3_000, 10_000]
VOCAB_SIZE, TOKENS_A_TURN, READ_AT_ONCE = 2048, 20, 128
ATTENTIONS = {
    "softmax": "explicit",
    "window of 64": SlidingWindowConfig(type="sliding_window", window=64),
    "linear": "linear",
}


def decoder(name: str) -> Decoder:
    config = DecoderConfig(
        context_length=LENGTHS[-1] + TOKENS_A_TURN, d_model=128, n_layers=4, n_heads=4, attention=ATTENTIONS[name]
    )
    model = build_model(config, VOCAB_SIZE)
    assert isinstance(model, Decoder)
    return model.eval()


class Writer:
    """A model that has read so many tokens, and writes the next ones again and again."""

    def __init__(self, model: Decoder, n_read: int) -> None:
        self.lean = SingleTokenDecoder(model)
        self.state = model.new_state(1, n_read + TOKENS_A_TURN)
        for piece_BT in torch.randint(VOCAB_SIZE, (1, n_read)).split(READ_AT_ONCE, dim=1):
            model(piece_BT, self.state)

    def milliseconds(self) -> float:
        """Per token, over one turn."""
        state, token_B = copy.deepcopy(self.state), torch.zeros(1, dtype=torch.long)
        started = time.perf_counter()
        for _ in range(TOKENS_A_TURN):
            self.lean(token_B, state)
        return 1000 * (time.perf_counter() - started) / TOKENS_A_TURN


def draw(figures: dict[str, dict[str, float]], file: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = new_figure("What one more token costs, by the tokens before it", 10, 4)
        panels = figure.subplots(1, 2)
        for axes, unit, label in zip(panels, ("ms", "KB"), ("time (ms)", "memory kept of the text (KB)"), strict=True):
            labels = []
            for i, name in enumerate(ATTENTIONS):
                costs, style = [figures[f"{length:,}"][f"{name} ({unit})"] for length in LENGTHS], line_style(i)
                axes.plot(LENGTHS, costs, style.marker, color=style.color, linestyle=style.linestyle)
                labels.append(EndLabel(name, LENGTHS[-1], costs[-1], style))
            of_panel = [cost for row in figures.values() for what, cost in row.items() if f"({unit})" in what]
            log_axis(axes, "x", log_limits(LENGTHS), [10, 100, 1_000, 10_000])
            log_axis(axes, "y", log_limits(of_panel))
            axes.set_xlabel("tokens before it")
            axes.set_title(label, loc="left")
            label_ends(axes, labels)
        file.parent.mkdir(exist_ok=True)
        figure.savefig(file, dpi=150)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("figure", type=Path)
    arguments.add_argument("--turns", type=int, default=15)
    options = arguments.parse_args()
    torch.manual_seed(0)
    precision = resolve_precision("cpu", "fp32")

    models = {name: decoder(name) for name in ATTENTIONS}
    figures: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        for length in LENGTHS:
            writers = {name: Writer(model, length) for name, model in models.items()}
            turns = [
                {name: writer.milliseconds() for name, writer in writers.items()} for _ in range(options.turns + 1)
            ]
            times = {
                f"{name} (ms)": statistics.median(turn[name] for turn in turns[1:]) for name in models
            }  # 1 warms up
            sizes = {f"{name} (KB)": state_bytes(model, precision, length) / 1000 for name, model in models.items()}
            figures[f"{length:,}"] = times | sizes
    print_table("tokens before", figures)
    if options.record:
        record("context", figures, numbers="fp32")
    draw(figures, options.figure)


if __name__ == "__main__":
    main()

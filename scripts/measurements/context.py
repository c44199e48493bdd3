"""The cost of one more token after 10 to 10,000 others: softmax attention, a sliding window, and linear attention.

Remakes: context
Takes: some minutes
Needs: nothing (then `draw.py context` draws it)

Time is that of writing a token, as `pellucid generate` does, with random weights; the three take turns, and a point is
the median over the turns. Memory is what the model keeps of a text of that length, counted.
"""

import copy
from collections.abc import Iterator
from statistics import median

import torch
from results import Entry
from timing import seconds_of, take_turns

from pellucid.config.model import DecoderConfig, SlidingWindowConfig
from pellucid.cost.meter import state_bytes
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


def measure(*, turns: int = 15) -> Iterator[Entry]:
    torch.manual_seed(0)
    precision = resolve_precision("cpu", "fp32")
    models = {name: decoder(name) for name in ATTENTIONS}
    figures: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        for length in LENGTHS:
            writers = {name: Writer(model, length).milliseconds for name, model in models.items()}
            times = {f"{name} (ms)": median(milliseconds) for name, milliseconds in take_turns(writers, turns).items()}
            sizes = {f"{name} (KB)": state_bytes(model, precision, length) / 1000 for name, model in models.items()}
            figures[f"{length:,}"] = times | sizes
    yield Entry("context", figures, numbers="fp32")


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
        return 1000 * seconds_of(lambda: self.lean(token_B, state), TOKENS_A_TURN) / TOKENS_A_TURN

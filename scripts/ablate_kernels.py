"""What each part that stands under the code gains, measured on the demo's update, its decoding, its encoding.

    python scripts/ablate_kernels.py --record

With and without take turns in one process, a few updates each; a line gives the median over the pairs of the time
without divided by the time with. A part that gains less than 3 % on every kind of machine has to go.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from results import here, parser, print_table, record
from rivals import Shape

from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.generation import in_step as in_step_module
from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.single_token import SingleTokenDecoder
from pellucid.generation.writing import Writing
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.model import one_token
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel
from pellucid.recipe import build_trainer, prepare_data
from pellucid.tokenizer import Tokenizer

CONFIG = Path(__file__).parent.parent / "configs" / "fables.yaml"
UPDATES_A_TURN, TOKENS_A_TURN, TEXTS_AT_ONCE = 3, 100, 1000


class EveryLayerCalled:
    """In place of SingleTokenDecoder: the decoder itself."""

    def __init__(self, decoder):
        self.decoder = decoder

    def __call__(self, tokens_B, cache):
        return self.decoder(tokens_B[:, None], cache)[:, -1]


def seconds(work: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - started


def ratio(with_it: Callable[[], object], without: Callable[[], object], times: int, pairs: int) -> float:
    """How many times as long it takes without: the median over pairs that take turns. One more pair warms up."""
    ratios = [seconds(without, times) / seconds(with_it, times) for _ in range(pairs + 1)]
    return statistics.median(ratios[1:])


def decode(model: LanguageModel, n_samples: int, reader: Callable[..., object]) -> None:
    in_step_module.reader_of_one_token = reader
    sampling = Sampling(top_k=50)
    list(in_step(model, [Writing([0], TOKENS_A_TURN, sampling, (0, i)) for i in range(n_samples)], stop_ids=()))


def with_plain_products(decoder: Decoder) -> SingleTokenDecoder:
    packs, one_token.gains_from_packing = one_token.gains_from_packing, lambda weight_OI: False
    lean = SingleTokenDecoder(decoder)
    one_token.gains_from_packing = packs
    return lean


def measure_decoding(demo: LanguageModel, pairs: int) -> dict[str, float]:
    """Times decoding: one text and 16 by the demo, one and eight by a model of 6 layers and width 256."""
    wide = Shape(batch_size=8, context_length=256, vocab_size=8192, d_model=256, n_layers=6, n_heads=4)
    wide_model = build_model(wide.config, wide.vocab_size)
    one, wide_one, eight = partial(decode, demo, 1), partial(decode, wide_model, 1), partial(decode, wide_model, 8)
    lean = SingleTokenDecoder
    return {
        "decoding: the lean decoder for single tokens": ratio(
            partial(one, lean), partial(one, EveryLayerCalled), 1, pairs
        ),
        "decoding 1 text, 6L d256: large products by oneDNN": ratio(
            partial(wide_one, lean), partial(wide_one, with_plain_products), 1, pairs
        ),
        "decoding 8 texts, 6L d256: large products by oneDNN": ratio(
            partial(eight, lean), partial(eight, with_plain_products), 1, pairs
        ),
    }


def encode(tokenizer_json: str, texts: list[str], with_cache: bool) -> None:
    """All texts, some at a time, by a tokenizer that has seen none of them."""
    tokenizer, remaining = Tokenizer.from_json(tokenizer_json), iter(texts)
    while some := list(islice(remaining, TEXTS_AT_ONCE)):
        if with_cache:
            tokenizer.encode_batch(some)
        else:
            for ids in tokenizer._encode_words(some):
                np.array(ids, dtype=np.uint32)


def measure_word_cache(pairs: int) -> dict[str, dict[str, float]]:
    """Times how some of the demo's fables are turned into tokens, with the cache of words and without."""
    config = load_run_config(CONFIG, ["corpus.size=10000"])
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_json = prepare_data(config, Path(folder)).tokenizer.to_json()
    work = partial(encode, tokenizer_json, list(build_corpus(config.corpus).documents("train")))
    return {"each word encoded once": {"times as long": ratio(partial(work, True), partial(work, False), 1, pairs)}}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=15)
    chosen = arguments.parse_args()
    keep_freed_memory()
    config = load_run_config(CONFIG, ["corpus.size=2000", "train.precision=fp32"])
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_data(config, Path(folder))
        fast, _ = build_trainer(config, data)
        without, _ = build_trainer(config, data)
        without.forward = without.model
        name = "in float32: large products by oneDNN"
        times_as_long = {name: ratio(fast.update, without.update, UPDATES_A_TURN, chosen.pairs)}
        times_as_long |= measure_decoding(fast.model, chosen.pairs)
    figures = {name: {"times as long": figure} for name, figure in times_as_long.items()}
    print_table("without", figures)
    if chosen.record:
        record(here("kernels"), figures, ["fables/shape"])
    of_cache = measure_word_cache(min(3, chosen.pairs))
    print_table("encoding without", of_cache)
    if chosen.record:
        record("word_cache", of_cache, ["fables/shape"])


if __name__ == "__main__":
    main()

"""The gain of each part that stands under the code, measured on the demo's update, its decoding, its encoding.

Remakes: kernels, word_cache
Takes: 15 minutes
Needs: nothing

With and without take turns in one process, a few updates each; a line gives the median over the pairs of the time
without divided by the time with. A part that gains less than 3 % on every kind of machine has to go.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from measurements.rivals import Shape
from results import Entry, here
from runs import FABLES
from timing import median_ratio, seconds_of, take_turns

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

UPDATES_A_TURN, TOKENS_A_TURN, TEXTS_AT_ONCE = 3, 100, 1000
Rows = dict[str, dict[str, float]]


def measure(*, pairs: int = 15) -> Iterator[Entry]:
    keep_freed_memory()
    config = load_run_config(FABLES, ["corpus.size=2000", "train.precision=fp32"])
    data = prepare_data(config, Path("data"))
    fast, without = (build_trainer(config, data)[0] for _ in range(2))
    without.forward = without.model
    products = times_as_long(fast.update, without.update, UPDATES_A_TURN, pairs)
    rows = {"in float32: large products by the faster library": products, **decoding(fast.model, pairs)}
    yield Entry(here("kernels"), rows, ["fables/shape"])
    yield Entry("word_cache", {"each word encoded once": encoding(min(3, pairs))}, ["fables/shape"])


def times_as_long(
    with_it: Callable[[], object], without: Callable[[], object], times: int, pairs: int
) -> dict[str, float]:
    """How much longer it takes without."""
    seconds = take_turns({each: partial(seconds_of, each, times) for each in (without, with_it)}, pairs)
    return {"times as long": median_ratio(seconds[without], seconds[with_it])}


class EveryLayerCalled:
    """In place of SingleTokenDecoder: the decoder itself."""

    def __init__(self, decoder: Decoder):
        self.decoder = decoder

    def __call__(self, tokens_B, cache):
        return self.decoder(tokens_B[:, None], cache)[:, -1]


def with_plain_products(decoder: Decoder) -> SingleTokenDecoder:
    gains, one_token.gains_from_layout = one_token.gains_from_layout, lambda *weights_OI: False
    lean = SingleTokenDecoder(decoder)
    one_token.gains_from_layout = gains
    return lean


def decode(model: LanguageModel, n_samples: int, reader: Callable[..., object]) -> list[list[int]]:
    """Writes texts with this reader of single tokens."""
    usual, in_step_module.reader_of_one_token = in_step_module.reader_of_one_token, reader
    writings = [Writing([0], TOKENS_A_TURN, Sampling(top_k=50), (0, i)) for i in range(n_samples)]
    list(in_step(model, writings, stop_ids=()))
    in_step_module.reader_of_one_token = usual
    return [writing.token_ids for writing in writings]


def decoding(demo: LanguageModel, pairs: int) -> Rows:
    """One text by the demo, one and eight by a model of 6 layers and width 256."""
    wide = Shape(batch_size=8, context_length=256, vocab_size=8192, d_model=256, n_layers=6, n_heads=4)
    wide_model, products = build_model(wide.config, wide.vocab_size), "6L d256: large products laid out"
    cases = {
        "decoding: the lean decoder for single tokens": (demo, 1, EveryLayerCalled),
        f"decoding 1 text, {products}": (wide_model, 1, with_plain_products),
        f"decoding 8 texts, {products}": (wide_model, 8, with_plain_products),
    }
    return {
        name: times_as_long(partial(decode, model, n, SingleTokenDecoder), partial(decode, model, n, slow), 1, pairs)
        for name, (model, n, slow) in cases.items()
    }


def encode(tokenizer_json: str, texts: list[str], with_cache: bool) -> list[list[int]]:
    """All texts, some at a time, by a tokenizer that has seen none of them."""
    tokenizer, remaining, encoded = Tokenizer.from_json(tokenizer_json), iter(texts), []
    while some := list(islice(remaining, TEXTS_AT_ONCE)):
        all_ids = tokenizer.encode_batch(some) if with_cache else tokenizer._encode_words(some)
        encoded += [np.array(ids, dtype=np.uint32) for ids in all_ids]
    return encoded


def encoding(pairs: int) -> dict[str, float]:
    """Some of the demo's fables are turned into tokens, with the cache of words and without."""
    config = load_run_config(FABLES, ["corpus.size=10000"])
    tokenizer_json = prepare_data(config, Path("data")).tokenizer.to_json()
    work = partial(encode, tokenizer_json, list(build_corpus(config.corpus).documents("train")))
    return times_as_long(partial(work, True), partial(work, False), 1, pairs)

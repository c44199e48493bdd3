"""The scale of own texts of three sizes: what a counter of n-grams and xz reach on them, in bits per byte.

Remakes: own text scale
Takes: 1 minute
Needs: nothing

The texts, the tokens and what is held out are those of `own_text`, so its models stand beside these figures.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from measurements.own_text import n_bytes, three_texts, write_texts
from results import ROOT, Entry

from pellucid.config.load import load_run_config
from pellucid.recipe import prepare_data


def measure() -> Iterator[Entry]:
    figures = {name: scale_of(name, texts) for name, texts in three_texts(topics).items()}
    yield Entry("own text scale", figures, ["own_text"])


def scale_of(name: str, texts: dict[str, str]) -> dict[str, float]:
    write_texts(Path(name), texts)
    config = load_run_config(ROOT / "configs/own_text.yaml", [f"corpus.files=[{name}/*.txt]"])
    data = prepare_data(config, Path("data"))
    started = time.process_time()
    scale = data.scale
    assert scale is not None
    seconds = time.process_time() - started
    return {
        "MB": n_bytes(texts) / 1e6,
        "n": scale.n,
        "counter": scale.counter_bits_per_byte,
        "xz": scale.xz_bits_per_byte,
        "seconds": seconds,
    }

"""How fast `pellucid prepare` is, and in how much memory.

    python scripts/measure_preparation.py --megabytes 300

Writes that much English-like text (words drawn by a Zipf law from 50,000 made ones), prepares it with a byte-pair
vocabulary of 4,096, and prints megabytes per second of the whole command and of its encoding, and its peak memory.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results import parser, print_table, record

from pellucid.corpora.corpus import Piece
from pellucid.data.encoding import encode_parts
from pellucid.tokenizer import Tokenizer

CONFIG = """\
name: measure
corpus: {type: text, files: [text.txt]}
tokenizer: {type: bpe, vocab_size: 4096}
model: {context_length: 64, d_model: 64, n_layers: 1, n_heads: 1}
optimizer: {type: adamw}
schedule: {type: constant}
train: {steps: 1, batch_size: 1}
"""


def write_text(file: Path, megabytes: int) -> None:
    """Lines of words, frequent ones short, as in a natural language."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    weights = 1 / np.arange(1, 27)
    words = [
        "".join(rng.choice(letters, size=2 + int(np.log2(rank) / 2) + rng.integers(3), p=weights / weights.sum()))
        for rank in range(1, 50_001)
    ]
    frequencies = 1 / np.arange(1, 50_001)
    with file.open("w", encoding="utf-8") as stream:
        while stream.tell() < megabytes * 1_000_000:
            drawn = rng.choice(50_000, size=240_000, p=frequencies / frequencies.sum())
            stream.write("\n".join(" ".join(words[i] for i in line) for line in drawn.reshape(-1, 12)) + ".\n")


def encoding_seconds(text: Path, tokenizer_file: Path) -> float:
    """Of the tokens alone, in batches of a thousand lines."""
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    pieces = [Piece(line, ends_document=False) for line in lines]
    batches = (pieces[i : i + 1000] for i in range(0, len(pieces), 1000))
    tokenizer = Tokenizer.load(tokenizer_file)
    started = time.perf_counter()
    for _ in encode_parts(tokenizer, batches):
        pass
    return time.perf_counter() - started


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=300)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_text(text, options.megabytes)
        (Path(folder) / "measure.yaml").write_text(CONFIG, encoding="utf-8")
        megabytes = text.stat().st_size / 1e6
        started = time.perf_counter()
        command = [sys.executable, "-m", "pellucid.cli", "prepare", "measure.yaml"]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        [tokenizer_file] = Path(folder).glob("data/*/tokenizer.json")
        of_encoding = megabytes / encoding_seconds(text, tokenizer_file)
    figures = {
        "megabytes": megabytes,
        "all (MB per second)": megabytes / seconds,
        "encoding (MB per second)": of_encoding,
        "peak memory (MiB)": peak,
    }
    print_table("preparation", {name: {"": value} for name, value in figures.items()})
    if options.record:
        record("preparation", figures)


if __name__ == "__main__":
    main()

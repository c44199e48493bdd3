"""How fast `pellucid` answers and prepares text, and in how much memory.

    python scripts/measure_preparation.py --megabytes 300

Writes that much English-like text (words drawn by a Zipf law from 50,000 made ones), prepares it with a byte-pair
vocabulary of 4,096, and prints megabytes per second of the whole command and its peak memory.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

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
    with file.open("w") as stream:
        while stream.tell() < megabytes * 1_000_000:
            drawn = rng.choice(50_000, size=240_000, p=frequencies / frequencies.sum())
            stream.write("\n".join(" ".join(words[i] for i in line) for line in drawn.reshape(-1, 12)) + ".\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    megabytes = parser.parse_args().megabytes
    command = [sys.executable, "-m", "pellucid.cli"]

    seconds = []
    for _ in range(7):
        started = time.perf_counter()
        subprocess.run([*command, "--help"], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - started)
    print(f"pellucid --help: {statistics.median(seconds):.2f} s (median of 7)")

    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder) / "text.txt", megabytes)
        (Path(folder) / "measure.yaml").write_text(CONFIG)
        size = (Path(folder) / "text.txt").stat().st_size
        started = time.perf_counter()
        subprocess.run([*command, "prepare", "measure.yaml"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        elapsed = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    speed = size / 1e6 / elapsed
    print(f"pellucid prepare: {size / 1e6:.0f} MB in {elapsed:.1f} s: {speed:.1f} MB/s, peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()

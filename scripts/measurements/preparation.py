"""How fast `pellucid prepare` is, and in how much memory.

Remakes: preparation
Takes: 1 minute for 300 MB
Needs: nothing; Linux

Writes that much English-like text (words drawn by a Zipf law from 50,000 made ones), learns a byte-pair vocabulary of
4,096 from its first part, then prepares the text with it. Memory that n programs have in common counts 1 / n (PSS).
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from results import Entry, here

LEARNING_MEGABYTES = 32
N_WORDS, WORDS_AT_ONCE = 50_000, 240_000
SECONDS_BETWEEN_LOOKS = 0.5

CONFIG = """\
name: measure
corpus: {type: text, files: [text.txt]}
tokenizer: {type: bpe, vocab_size: 4096}
model: {context_length: 64, d_model: 64, n_layers: 1, n_heads: 1}
optimizer: {type: adamw}
schedule: {type: constant}
train: {steps: 1, batch_size: 1}
"""


def measure(*, megabytes: float = 2000) -> Iterator[Entry]:
    write_text(Path("start.txt"), LEARNING_MEGABYTES)
    write_text(text := Path("text.txt"), megabytes)
    Path("measure.yaml").write_text(CONFIG, encoding="utf-8")
    learning, _ = seconds_and_mebibytes("corpus.files=[start.txt]")
    [tokenizer_file] = Path("data").glob("*/tokenizer.json")
    seconds, peak = seconds_and_mebibytes(f"tokenizer={{type: file, path: {tokenizer_file}}}")
    written = text.stat().st_size / 1e6
    figures = {
        "megabytes": written,
        "MB per second": written / seconds,
        "peak memory (MiB)": peak,
        f"learning tokens from {LEARNING_MEGABYTES} MB (s)": learning,
    }
    yield Entry(here("preparation"), figures)


def write_text(file: Path, megabytes: float) -> None:
    """Lines of words, frequent ones short, as in a natural language."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    weights = 1 / np.arange(1, 27)
    words = [
        "".join(rng.choice(letters, size=2 + int(np.log2(rank) / 2) + rng.integers(3), p=weights / weights.sum()))
        for rank in range(1, N_WORDS + 1)
    ]
    frequencies = 1 / np.arange(1, N_WORDS + 1)
    with file.open("w", encoding="utf-8") as stream:
        while stream.tell() < megabytes * 1_000_000:
            drawn = rng.choice(N_WORDS, size=WORDS_AT_ONCE, p=frequencies / frequencies.sum())
            stream.write("\n".join(" ".join(words[i] for i in line) for line in drawn.reshape(-1, 12)) + ".\n")


def seconds_and_mebibytes(*overrides: str) -> tuple[float, float]:
    """How long one `pellucid prepare` takes, and the most memory that it uses."""
    command = [sys.executable, "-m", "pellucid", "prepare", "measure.yaml", *overrides]
    started, most = time.perf_counter(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, mebibytes(process.pid))
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise SystemExit(f"prepare ended with {process.returncode}")
    return time.perf_counter() - started, most


def mebibytes(pid: int) -> float:
    """Its share of the memory: pages that n processes have in common count 1 / n for each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except OSError:  # it has just ended
        return 0.0

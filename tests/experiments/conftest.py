"""What the tests of experiments share: a base config that trains in a moment."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tiny_run import VERSES

BASE = """\
name: base
corpus: {type: fables, size: 40, world_size: 6, validation_fraction: 0.2}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 64, d_model: 8, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: cosine, warmup_steps: 2}
train: {steps: 4, batch_size: 2, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 2}
sample: {every_steps: 1000, n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 20}
"""


@pytest.fixture(scope="session")
def write_base() -> Callable[[Path], None]:
    """Puts base.yaml into a folder, and a text of which no truth is known."""

    def write(folder: Path) -> None:
        (folder / "base.yaml").write_text(BASE)
        (folder / "corpus.txt").write_text(VERSES)

    return write


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_base: Callable[[Path], None]) -> Path:
    """An empty folder to work in, with base.yaml."""
    write_base(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path

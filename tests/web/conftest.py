"""A run on fables that takes a second, and the page of it."""

from pathlib import Path

import pytest

from pellucid import train

FABLES_RUN = """\
name: fables
corpus: {type: fables, size: 50, world_size: 3, validation_fraction: 0.1}
tokenizer: {type: bpe, vocab_size: 400}
data: {packing: documents}
model: {type: decoder, context_length: 256, d_model: 16, n_layers: 2, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 0}
train: {steps: 4, batch_size: 2, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 2, max_tokens: 512}
sample: {every_steps: 100}
checkpoint: {every_steps: 2, keep_last: 10}
"""


@pytest.fixture(scope="session")
def fables_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with checkpoints after steps 2 and 4."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "fables.yaml").write_text(FABLES_RUN)
    train(folder / "fables.yaml", folder / "fables", data_dir=folder / "data")
    return folder / "fables"

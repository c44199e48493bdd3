"""The run that every fault is done to, and what it means that two runs are the same.

A tiny decoder with dropout and accumulation, 30 steps over five epochs, a save every 5.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from pellucid.checkpoint.ownership import NOT_SAVED_YET
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import TENSOR_FILES, read_checkpoint, step_name
from pellucid.training.metrics import read_rows
from tiny_run import VERSES

CORPUS = VERSES
STEPS, SAVE_EVERY = 30, 5
REFERENCE_CONFIG = f"""\
name: reference
corpus: {{type: text, files: [corpus.txt], separator: "\\n\\n"}}
tokenizer: {{type: bpe, vocab_size: 300}}
data: {{packing: documents}}
model: {{context_length: 32, d_model: 8, n_layers: 1, n_heads: 2, dropout: 0.1}}
optimizer: {{type: adamw, lr: 1e-2}}
schedule: {{type: cosine, warmup_steps: 2}}
train:
  steps: {STEPS}
  batch_size: 2
  gradient_accumulation_steps: 2
  precision: fp32
  device: cpu
  log_every_steps: 1
evaluation: {{every_steps: 10}}
sample: {{every_steps: 10, n_samples: 1, max_new_tokens: 4}}
checkpoint: {{every_steps: {SAVE_EVERY}, keep_last: 3}}
"""


@dataclass(frozen=True)
class Trace:
    """All that two runs must have in common to be the same run.

    digest: SHA-256 of weights, optimizer, generators and data state.   losses: rows of metrics.jsonl, timings aside.
    """

    step: int
    digest: str
    losses: tuple[str, ...]
    samples: str


def trace(run_dir: Path) -> Trace:
    """The trace of a run up to its newest checkpoint, which must be whole."""
    step = steps_in(run_dir)[-1]
    directory = run_dir / step_name(step)
    digest = hashlib.sha256(b"".join((directory / name).read_bytes() for name in TENSOR_FILES))
    state = read_checkpoint(directory).state.model_dump(exclude={"elapsed_seconds", "logs"})
    digest.update(json.dumps(state, sort_keys=True).encode())
    timings = {"elapsed_seconds", "tokens_per_second"}
    rows = [{k: v for k, v in row.items() if k not in timings} for row in read_rows(run_dir / "metrics.jsonl")]
    samples = (run_dir / "samples.md").read_text() if (run_dir / "samples.md").exists() else ""
    return Trace(step, digest.hexdigest(), tuple(json.dumps(row) for row in rows), samples)


def leftovers(run_dir: Path) -> list[str]:
    """Temporary folders and files that somebody forgot."""
    expected = {".lock"} if steps_in(run_dir) else {".lock", NOT_SAVED_YET}
    return sorted(path.name for path in run_dir.iterdir() if path.name.startswith(".") and path.name not in expected)

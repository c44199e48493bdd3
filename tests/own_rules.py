"""A language in a file, which somebody edits after a run was trained on it."""

from pathlib import Path

OWN_RUN = """\
name: own
corpus: {type: grammar, file: own.rules, size: 200, validation_fraction: 0.02}
tokenizer: {type: bpe, vocab_size: 280}
data: {packing: documents}
model: {context_length: 48, d_model: 16, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 0}
train: {steps: 1, batch_size: 2, precision: fp32, device: cpu}
evaluation: {every_steps: 1}
sample: {every_steps: 100}
"""


def write_rules(weight_of_ant: int) -> None:
    """A sentence of eight words, in which `ant` has this weight beside two others of weight 1."""
    Path("own.rules").write_text(f"s\n    1 {'[w] ' * 8}\nw\n    {weight_of_ant} ant\n    1 bee\n    1 cow\n")

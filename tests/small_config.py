"""A config that is complete and says little: what tests of configs change."""

SMALL = """\
name: small
corpus: {type: fables}
model:
  context_length: 64
  d_model: 64
  n_layers: 2
  n_heads: 2
  position: {type: rope, base: 1e4}
optimizer:
  type: adamw
  lr: 3e-4
schedule: {type: cosine, warmup_steps: 10}
train:
  steps: 100
  batch_size: 8
"""

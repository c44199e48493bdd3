"""A tiny run that learns from rewards, and all that it begins with: a run that reads instructions, and a judge.

The judge is a reward model with drawn weights: so answers of noise, which the grammar would all give 0, differ.
"""

from dataclasses import replace
from pathlib import Path

import torch

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint, write_checkpoint
from pellucid.config.load import load_run_config, run_config_to_yaml
from pellucid.runs.train_run import train_run

READER = """\
name: reader
corpus: {type: instructions, size: 24, world_size: 3, seed: 0, validation_fraction: 0.25}
tokenizer: {type: bpe, vocab_size: 400}
data: {packing: documents}
model: {context_length: 96, d_model: 16, n_layers: 1, n_heads: 2, embedding_std: 0.3}
objective: {type: sft}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 1, batch_size: 4, precision: fp32, device: cpu}
sample: {n_samples: 1, max_new_tokens: 4}
"""
POLICY = """\
name: policy
start_from: reader
corpus: {type: instructions, size: 24, world_size: 3, seed: 0, validation_fraction: 0.25}
objective:
  type: grpo
  group_size: 3
  beta: 0.05
  updates_per_rollout: 3
  max_new_tokens: 12
  reward: {type: model, run: judge}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train:
  steps: 8
  batch_size: 2
  gradient_accumulation_steps: 2
  precision: fp32
  device: cpu
  log_every_steps: 1
  processes: 1
evaluation: {every_steps: 4, max_tokens: 60}
sample: {every_steps: 4, n_samples: 1}
checkpoint: {every_steps: 1, keep_last: 20}
"""
PPO = "objective={type: ppo, beta: 0.05, updates_per_rollout: 3, max_new_tokens: 12, reward: {type: model, run: judge}}"


def make_policy_place(folder: Path) -> None:
    """Puts the runs `reader` and `judge`, and the config policy.yaml, into the folder."""
    (folder / "reader.yaml").write_text(READER)
    (folder / "policy.yaml").write_text(POLICY)
    config = load_run_config(folder / "reader.yaml")
    train_run(config, folder / "data", folder / "reader", resume=False, overwrite=False, note=lambda line: None)
    read = read_checkpoint(find_step_directory(folder / "reader", "latest"))
    generator = torch.Generator().manual_seed(0)
    head = {"weight": torch.randn(1, 16, generator=generator), "bias": torch.zeros(1)}
    model = {**read.model, **{f"scalar_head.{name}": tensor for name, tensor in head.items()}}
    changes = ["name=judge", "objective={type: reward_model}", f"start_from={folder / 'reader'}"]
    judging = load_run_config(folder / "policy.yaml", changes)
    (folder / "judge").mkdir()
    judge = replace(read, model=model, config_yaml=run_config_to_yaml(judging))
    write_checkpoint(folder / "judge", judge)

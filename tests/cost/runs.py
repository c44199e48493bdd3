"""Configs and runs that the tests of cost share."""

from pathlib import Path

import torch

from model.model_axes import tiny_config
from pellucid.config.load import load_run_config
from pellucid.objectives.next_token import cross_entropies
from pellucid.runtime.precision import Precision

BATCH_SIZE, CONTEXT_LENGTH, VOCAB_SIZE = 16, 32, 60
CPU = torch.device("cpu")
FP32, BF16 = Precision(CPU, torch.float32), Precision(CPU, torch.bfloat16)


def small_config(**choices):
    """Not tiny: activations are most of what a step holds, as in real training."""
    sizes = {"context_length": CONTEXT_LENGTH, "d_model": 32, "n_heads": 4, "d_ff": 80}
    return tiny_config(**{**sizes, **choices})


def run_config(model, optimizer=None, **train):
    """A run of this model with a batch of BATCH_SIZE rows."""
    config = load_run_config(Path("configs/debug.yaml"))
    train = config.train.model_copy(update={"batch_size": BATCH_SIZE, **train})
    return config.model_copy(update={"model": model, "optimizer": optimizer or config.optimizer, "train": train})


def loss_and_logits(model, precision):
    """As in the trainer, which still holds the logits when the backward pass begins."""
    device = precision.device
    tokens_BT = torch.zeros(BATCH_SIZE, model.context_length, dtype=torch.long, device=device)
    with precision.autocast():
        logits_BTV = model(tokens_BT)
    return cross_entropies(logits_BTV.flatten(0, 1), tokens_BT.flatten()).sum(), logits_BTV

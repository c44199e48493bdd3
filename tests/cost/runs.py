"""Configs and measurements that the tests of a run's cost share."""

from contextlib import nullcontext

import torch

from model.model_axes import tiny_config
from pellucid.cost.build import build_micro_batch
from pellucid.training.objectives import next_token_nats

BATCH_SIZE, CONTEXT_LENGTH = 16, 32


def small_config(**choices):
    """Not tiny: activations are most of what a step holds, as in real training."""
    sizes = {"context_length": CONTEXT_LENGTH, "d_model": 32, "n_heads": 4, "d_ff": 80}
    return tiny_config(**{**sizes, **choices})


def micro_batch(config, vocab_size, dtype=torch.float32, *, recomputes_blocks=False, device_type="cpu"):
    return build_micro_batch(
        config,
        vocab_size,
        batch_size=BATCH_SIZE,
        recomputes_blocks=recomputes_blocks,
        device_type=device_type,
        dtype=dtype,
    )


def loss_and_logits(model, vocab_size, dtype):
    """As in the trainer, which still holds the logits when the backward pass begins."""
    tokens_BT = torch.randint(
        vocab_size, (BATCH_SIZE, model.context_length), device=model.embeddings.embedding_VD.device
    )
    autocast = nullcontext() if dtype == torch.float32 else torch.autocast(tokens_BT.device.type, dtype)
    with autocast:
        logits_BTV = model(tokens_BT)
    return next_token_nats(logits_BTV, tokens_BT), logits_BTV

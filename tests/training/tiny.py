"""A tiny decoder, tiny batches and a trainer around them, for the tests of training."""

import torch
from torch import Tensor

from pellucid.config.model import DecoderConfig
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import Precision
from pellucid.training.optimizers import adamw
from pellucid.training.trainer import Trainer

VOCAB_SIZE, CONTEXT_LENGTH = 11, 8
CPU_FLOAT32 = Precision(torch.device("cpu"), torch.float32)


def decoder_config(**changes) -> DecoderConfig:
    settings = {"context_length": CONTEXT_LENGTH, "d_model": 16, "n_layers": 2, "n_heads": 2, **changes}
    return DecoderConfig(**settings)


def tiny_decoder(seed: int = 0, **changes) -> Decoder:
    torch.manual_seed(seed)
    return build_model(decoder_config(**changes), VOCAB_SIZE)


def random_batch(i: int, n_rows: int = 4) -> Batch:
    """Batch i: random tokens, of which a random share at the end of each row does not count."""
    generator = torch.Generator().manual_seed(i)
    tokens = torch.randint(VOCAB_SIZE, (n_rows, CONTEXT_LENGTH + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    for row, length in enumerate(torch.randint(1, CONTEXT_LENGTH + 1, (n_rows,), generator=generator).tolist()):
        targets[row, length:] = IGNORE_INDEX
    return Batch(tokens[:, :-1], targets)


def tiny_trainer(decoder: Decoder, get_batch=random_batch, **changes) -> Trainer:
    optimizers = adamw(decoder, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    settings = {"forward": decoder, "optimizers": optimizers, "schedule": lambda step: 1.0, "precision": CPU_FLOAT32}
    return Trainer(decoder, get_batch=lambda i, rows: get_batch(i).part(rows), **{**settings, **changes})


def gradients(decoder: Decoder) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in decoder.named_parameters()}

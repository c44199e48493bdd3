"""Sorts a decoder's parameters and gives them to PyTorch's optimizers.

Every optimizer here treats matrices and vectors differently: weight decay shrinks matrices alone (a norm's gain has no
reason to be small), and Muon orthogonalises the update of a matrix, which means nothing for a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from pellucid.training.muon import Muon

Parameters = list[nn.Parameter]


def adamw(
    model: nn.Module, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> list[Optimizer]:
    """AdamW on everything (equation 15; Loshchilov and Hutter 2019)."""
    matrices, vectors = _matrices_and_vectors(model.parameters())
    return [_adamw(matrices, vectors, lr, betas, eps, weight_decay)]


def muon(
    model: nn.Module,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    adamw_lr: float,
    adamw_betas: tuple[float, float],
    adamw_eps: float,
    dtype: torch.dtype,
) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) on the matrices inside blocks, AdamW on embeddings, biases and norms.

    Muon replaces the momentum of a matrix by the nearest orthogonal matrix: all directions move equally far. An
    embedding is a list of vectors rather than a map between spaces, so it stays with AdamW.
    `dtype` is the format of Muon's products.
    """
    in_blocks = {name: p for name, p in model.named_parameters() if name.startswith("blocks.")}
    block_matrices = [p for p in in_blocks.values() if p.ndim == 2]
    chosen = {id(p) for p in block_matrices}
    matrices, vectors = _matrices_and_vectors(p for p in model.parameters() if id(p) not in chosen)
    return [
        Muon(block_matrices, lr=lr, momentum=momentum, weight_decay=weight_decay, dtype=dtype),
        _adamw(matrices, vectors, adamw_lr, adamw_betas, adamw_eps, weight_decay),
    ]


def sgd(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> list[Optimizer]:
    """Stochastic gradient descent with momentum."""
    matrices, vectors = _matrices_and_vectors(model.parameters())
    return [SGD(_groups(matrices, vectors, weight_decay), lr=lr, momentum=momentum)]


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Sets each optimizer to its peak learning rate times the schedule's factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            peak = group.setdefault("initial_lr", group["lr"])
            group["lr"] = peak * factor


def _adamw(
    matrices: Parameters,
    vectors: Parameters,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> AdamW:
    # One fused kernel per step instead of a dozen small ones per parameter.
    fused = (matrices + vectors)[0].device.type in ("cpu", "cuda")
    return AdamW(_groups(matrices, vectors, weight_decay), lr=lr, betas=betas, eps=eps, fused=fused)


def _groups(matrices: Parameters, vectors: Parameters, weight_decay: float) -> list[dict[str, object]]:
    groups = [(matrices, weight_decay), (vectors, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]


def _matrices_and_vectors(parameters: Iterable[nn.Parameter]) -> tuple[Parameters, Parameters]:
    matrices: Parameters = []
    vectors: Parameters = []
    for parameter in parameters:
        (matrices if parameter.ndim >= 2 else vectors).append(parameter)
    return matrices, vectors

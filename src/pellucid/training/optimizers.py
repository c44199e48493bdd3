"""Sorts a model's parameters into groups for the optimizers.

Every optimizer here treats matrices and vectors differently: weight decay shrinks matrices alone (a norm's gain has no
reason to be small), and Muon orthogonalises the update of a matrix, which makes no sense for a vector.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from typing_extensions import assert_never

from pellucid.config.training import AdamWConfig, MuonConfig, OptimizerConfig, SGDConfig
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision
from pellucid.training.muon import Muon


def build_optimizers(
    config: OptimizerConfig, model: nn.Module, precision: Precision, world: World = ALONE
) -> list[Optimizer]:
    """The optimizers: one, or two that divide the parameters between them."""
    options = config.model_dump(exclude={"type", "l1"})
    match config:
        case AdamWConfig():
            optimizers = adamw(model, **options)
        case MuonConfig():
            dtype = torch.float32 if precision.dtype == torch.float32 else torch.bfloat16
            optimizers = muon(model, **options, dtype=dtype, world=world)
        case SGDConfig():
            optimizers = sgd(model, **options)
        case _:
            assert_never(config)
    if config.l1:
        from pellucid.training.lasso import pull_towards_zero

        pull_towards_zero(optimizers, config.l1)
    return optimizers


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    embedding_lr: float | None = None,
) -> list[Optimizer]:
    """AdamW on all parameters (equation 15; Loshchilov and Hutter 2019), at another rate on embeddings if one is given.

    An embedding is a list of vectors, of which few get a gradient: it often takes a larger rate than matrices do.
    """
    if embedding_lr is None:
        return [_adamw(trained(model), lr, betas, eps, weight_decay)]
    embeddings = [p for name, p in model.named_parameters() if name.startswith("embeddings.") and p.requires_grad]
    others = [p for p in trained(model) if all(p is not embedding for embedding in embeddings)]
    parts = ((others, lr), (embeddings, embedding_lr))
    return [_adamw(part, rate, betas, eps, weight_decay) for part, rate in parts if part]


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
    world: World = ALONE,
) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) on the matrices of blocks and recurrent layers, AdamW on all other parameters.

    An embedding is a list of vectors rather than a map between spaces, so AdamW updates it; so is a router, which has
    a vector for each expert. The experts' own matrices are maps, and so are the A and B of LoRA. `dtype` is
    that of Muon's products.
    """
    inside = {name: p for name, p in model.named_parameters() if name.startswith(("blocks.", "layers."))}
    maps = [p for name, p in inside.items() if p.ndim == 2 and p.requires_grad and not name.endswith("router.weight")]
    chosen = set(maps)
    rest = [p for p in trained(model) if p not in chosen]
    result: list[Optimizer] = []
    if maps:  # none in a bigram: its table is a list of rows, as an embedding is
        result.append(Muon(maps, lr=lr, momentum=momentum, weight_decay=weight_decay, dtype=dtype, world=world))
    if rest:  # none in an adapter: all its matrices are inside blocks
        result.append(_adamw(rest, adamw_lr, adamw_betas, adamw_eps, weight_decay))
    return result


def sgd(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> list[Optimizer]:
    """Stochastic gradient descent with momentum."""
    return [SGD(_groups(trained(model), weight_decay), lr=lr, momentum=momentum)]


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters: all, or those of an adapter alone."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set each optimizer to its peak learning rate times the schedule's factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            peak = group.setdefault("initial_lr", group["lr"])
            group["lr"] = peak * factor


def _adamw(
    parameters: list[nn.Parameter], lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> AdamW:
    # One fused kernel per step instead of a dozen small ones per parameter.
    fused = parameters[0].device.type in ("cpu", "cuda")
    return AdamW(_groups(parameters, weight_decay), lr=lr, betas=betas, eps=eps, fused=fused)


def _groups(parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    """Parameter groups: matrices, with weight decay, and vectors, without."""
    matrices, vectors = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups = [(matrices, weight_decay), (vectors, 0.0)]
    return [{"params": params, "weight_decay": decay} for params, decay in groups if params]

"""What a training run is made of, as named tensors: weights, optimizer moments, random number generators.

Reading puts nothing into place before every name, shape and dtype has been compared with what is expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.checkpoint.step_directory import Tensors
from pellucid.errors import CheckpointError


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name; a tied matrix is stored once."""
    return dict(model.named_parameters())


def load_model_tensors(model: nn.Module, tensors: Tensors, where: str) -> None:
    """Copies saved parameters into the model. Raises CheckpointError if they belong to another shape of model."""
    parameters = model_tensors(model)
    _require_same_shapes(parameters, tensors, where)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The running statistics of each parameter, as `blocks.0.….weight/exp_avg`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value
        for optimizer in optimizers
        for parameter, statistics in optimizer.state.items()
        for key, value in statistics.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Tensors) -> None:
    """The inverse of `optimizer_tensors`. Learning rates are not stored: they are a function of the step."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    statistics: dict[str, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        statistics.setdefault(name, {})[key] = value
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state = {i: statistics[names[p]] for i, p in enumerate(parameters) if names[p] in statistics}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def rng_tensors() -> dict[str, Tensor]:
    """The states of PyTorch's generators, which dropout draws from. The order of the data needs none."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states.update({f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())})
    return states


def load_rng_tensors(tensors: Tensors) -> None:
    """The inverse of `rng_tensors`, for the generators that this machine has too."""
    torch.set_rng_state(tensors["cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{i}"], i)


def _require_same_shapes(expected: Mapping[str, Tensor], found: Tensors, where: str) -> None:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            what = f"parameter {name} is {'missing' if name not in found else 'unknown to this model'}"
            raise CheckpointError(where, what, "use the config that the run was trained with")
        if expected[name].shape != found[name].shape or expected[name].dtype != found[name].dtype:
            what = (
                f"parameter {name} is {tuple(found[name].shape)} {found[name].dtype}, "
                f"the model's is {tuple(expected[name].shape)} {expected[name].dtype}"
            )
            raise CheckpointError(where, what, "use the config that the run was trained with")

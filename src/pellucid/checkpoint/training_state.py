"""The state of a training run as named tensors: weights, optimizer moments, random number generators.

Loading changes nothing until every name, shape and dtype has been checked.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.adapters.lora import LoRALinear
from pellucid.adapters.quantized import code_tensors
from pellucid.checkpoint.step_directory import Checkpoint, Tensors
from pellucid.errors import CheckpointError
from pellucid.model.language_model import gives_logits
from pellucid.runtime.distributed import full_tensor, shard_like

OF_TASK = "task."


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model that a checkpoint stores, by name, unsharded; a tied matrix once.

    Parameters, and the codes of quantized layers; for a model with an adapter only what is trained: the base has the
    rest.
    """
    return {name: full_tensor(tensor) for name, tensor in _stored(model).items()}


def _stored(model: nn.Module) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters())
    if any(isinstance(module, LoRALinear) for module in model.modules()):
        return {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    return {**parameters, **code_tensors(model)}


def optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The running statistics of each parameter, as `blocks.0.….weight/exp_avg`.

    Learning rates are not among them: they are a function of the step.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": full_tensor(value)
        for optimizer in optimizers
        for parameter, statistics in optimizer.state.items()
        for key, value in statistics.items()
        if isinstance(value, Tensor)
    }


def rng_tensors(task_state: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The states of PyTorch's random generators, which dropout uses, and the task's saved state (`task.…`).

    The order of the data needs none: it is a function of the seed and the step.
    """
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states.update({f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())})
    return states | {f"{OF_TASK}{name}": tensor for name, tensor in (task_state or {}).items()}


def task_tensors(rng: Tensors) -> dict[str, Tensor]:
    """The task's saved tensors in `rng_tensors`, under their own names."""
    return {name.removeprefix(OF_TASK): tensor for name, tensor in rng.items() if name.startswith(OF_TASK)}


def load_training_state(model: nn.Module, optimizers: Sequence[Optimizer], saved: Checkpoint, where: str) -> None:
    """Restore weights, moments and, last, the generators. Raises CheckpointError if they belong to another model."""
    require_fit(model, saved, where)
    _load_parameters(model, saved.model)
    _load_optimizer_tensors(model, optimizers, saved.optimizer)
    for name, state in saved.rng.items():
        if name == "cpu":
            torch.set_rng_state(state)
        elif name in rng_tensors():  # this machine may have fewer devices
            torch.cuda.set_rng_state(state, int(name.removeprefix("cuda.")))


def load_model_tensors(model: nn.Module, tensors: Tensors, where: str) -> None:
    """Copy saved tensors into the model. Raises CheckpointError if they belong to a model of another shape."""
    _require_same_parameters(model, tensors, where)
    _load_parameters(model, tensors)


def load_first_weights(model: nn.Module, base: Tensors, seed: int, where: str) -> None:
    """Copy the weights of the run to start from into the model. CheckpointError, naming a tensor, for another shape.

    Tokens that the base lacks get random vectors, from the `seed`. A scalar head that only the model has stays as it
    is; one that only the base has is dropped.
    """
    expected = _stored(model)
    tensors = with_new_tokens(base, expected, seed)
    heads = {name: expected.get(name) for name in tensors.keys() | expected.keys() if not gives_logits(name)}
    without = {name: tensor for name, tensor in tensors.items() if name not in heads}
    shared_heads = {name: tensors.get(name, tensor) for name, tensor in heads.items() if tensor is not None}
    load_model_tensors(model, {**without, **shared_heads}, where)


def with_new_tokens(base: Tensors, now: Tensors, seed: int) -> Tensors:
    """The base's tensors; tables of token vectors get random new rows, of the old ones' mean and standard deviation.

    So new tokens are about as likely as others, but differ from each other. (With the mean alone they would be equal;
    Hewitt 2021.)
    """
    generator = torch.Generator().manual_seed(seed)
    grown = dict(base)
    for name in sorted(base.keys() & now.keys()):
        n_new = now[name].size(0) - base[name].size(0) if name.endswith("embedding_VD") else 0
        if n_new > 0:
            old_VD = base[name].float()
            noise_VD = torch.randn(n_new, old_VD.size(1), generator=generator)
            new_VD = old_VD.mean(dim=0) + old_VD.std(dim=0) * noise_VD
            grown[name] = torch.cat([base[name], new_VD.to(base[name].dtype)])
    return grown


def require_fit(model: nn.Module, saved: Checkpoint, where: str) -> None:
    """Raise CheckpointError unless everything saved belongs to this model, and every number is finite."""
    _require_same_parameters(model, saved.model, where)
    parameters, generators = dict(model.named_parameters()), rng_tensors()
    for path, value in saved.optimizer.items():
        parameter = parameters.get(path.rpartition("/")[0])
        expected = parameter if value.ndim or parameter is None else value.new_empty((), dtype=torch.float32)
        _require_same_kind(f"moment {path}", expected, value, where)
    if not saved.is_snapshot:
        for name in {"cpu"} | (generators.keys() & saved.rng.keys()):
            _require_same_kind(f"generator {name}", generators[name], saved.rng.get(name), where)
        try:
            torch.Generator().set_state(saved.rng["cpu"])
        except RuntimeError as error:
            raise CheckpointError(where, f"generator cpu: {error}", "use another checkpoint of the run") from error
    if (culprit := first_not_finite({**saved.model, **saved.optimizer})) is not None:
        raise CheckpointError(where, f"{culprit} holds NaN or infinity", "use an older checkpoint of the run")


def first_not_finite(tensors: Tensors) -> str | None:
    """The name of the first tensor that holds NaN or infinity; None if there is none."""
    return next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)


def _load_parameters(model: nn.Module, tensors: Tensors) -> None:
    local = {name: shard_like(tensors[name], tensor) for name, tensor in _stored(model).items()}
    model.load_state_dict(local, strict=False)  # the other half of a tied matrix is not stored


def _load_optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Tensors) -> None:
    by_name = dict(model.named_parameters())
    names = {parameter: name for name, parameter in by_name.items()}
    statistics: dict[str, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        statistics.setdefault(name, {})[key] = shard_like(value, by_name[name]) if value.ndim else value
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state = {i: statistics[names[p]] for i, p in enumerate(parameters) if names[p] in statistics}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _require_same_parameters(model: nn.Module, tensors: Tensors, where: str) -> None:
    expected = _stored(model)
    for name in sorted(expected.keys() | tensors.keys()):
        _require_same_kind(f"parameter {name}", expected.get(name), tensors.get(name), where)


def _require_same_kind(what: str, expected: Tensor | None, saved: Tensor | None, where: str) -> None:
    kinds = ["missing" if t is None else f"{tuple(t.shape)} {t.dtype}" for t in (expected, saved)]
    if kinds[0] != kinds[1]:
        fix = "use the config that the run was trained with, or another checkpoint"
        raise CheckpointError(where, f"{what} is {kinds[1]} in the checkpoint, {kinds[0]} in the model", fix)

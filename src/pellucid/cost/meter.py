"""Measures the work and memory of an update on fake tensors, which have shapes and dtypes, but no numbers or memory.

PyTorch passes every operation, forward and backward, to the meter, so nothing here depends on the kind of model.
Memory inside an operation is not seen: a CPU without bfloat16 instructions sums such matrix products in float32.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pellucid.adapters.quantized import code_tensors
from pellucid.checkpoint.training_state import model_tensors
from pellucid.cost.counts import FLOP_FORMULAS
from pellucid.model.language_model import LanguageModel
from pellucid.objectives.next_token import cross_entropies
from pellucid.runtime.precision import Precision

MOVES_NOTHING = ("empty", "new_empty", "_unsafe_view", "detach")


@dataclass(frozen=True)
class Work:
    """The work of a computation: FLOPs, bytes read and written, and number of operations."""

    flops: int
    bytes_moved: int
    operations: int


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes, by kind (equation 14). `training` is the sum of the first four.

    `activations` is everything else that a micro-batch holds, at its peak. Writing text needs the weights and, for each
    sequence, its `state` of a full context, which grows by `kv_cache_per_token`. `checkpoint` is the size of weights
    and moments on disk.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    training: int
    kv_cache_per_token: int
    state: int
    checkpoint: int


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, while active, operations, their FLOPs, the bytes they read and write, and the bytes in use."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.bytes_moved = self.operations = 0
        self.held_bytes = self.peak_bytes = 0

    @property
    def work(self) -> Work:
        return Work(self.flops, self.bytes_moved, self.operations)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        if operation.namespace == "prim":  # a question about a tensor
            return result
        inputs, outputs = _tensors([args, kwargs]), _tensors(result)
        self.operations += 1
        if count := FLOP_FORMULAS.get(operation.overloadpacket):
            self.flops += count(*args, **kwargs, out_val=result)
        if not operation.is_view and not operation.__name__.startswith(MOVES_NOTHING):
            self.bytes_moved += sum(tensor.nbytes for tensor in inputs + outputs)
        self._hold(inputs, outputs)
        return result

    def _hold(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Count newly allocated memory, until it is freed."""
        old, new = _storages(inputs), _storages(outputs)
        for address in new.keys() - old.keys():
            n_bytes = new[address].nbytes()
            self.held_bytes += n_bytes
            weakref.finalize(new[address], self._let_go, n_bytes)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _let_go(self, n_bytes: int) -> None:
        self.held_bytes -= n_bytes


def measure_update(
    model: LanguageModel, optimizers: Sequence[Optimizer], precision: Precision, *, batch_size: int
) -> tuple[Work, Work, MemoryBytes]:
    """The work of a micro-batch of `batch_size` full rows, that of the optimizer, and the memory of both.

    The model must be of fake tensors. Any loss is assumed to need as much as that of pretraining.
    """
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    tokens_BT = torch.zeros(batch_size, model.context_length, dtype=torch.long, device=parameters[0].device)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    with Meter() as micro_batch:
        with precision.autocast():
            logits_BTV = model(tokens_BT)
        cross_entropies(logits_BTV.flatten(0, 1), tokens_BT.flatten()).sum().backward()  # type: ignore[no-untyped-call]
    with Meter() as optimizer_step:
        nn.utils.clip_grad_norm_(trained, 1.0)
        for optimizer in optimizers:
            optimizer.step()

    weights = sum(tensor.nbytes for tensor in (*parameters, *code_tensors(model).values()))
    gradients = sum(parameter.nbytes for parameter in trained)
    moments = sum(moment.nbytes for optimizer in optimizers for moment in _tensors(list(optimizer.state.values())))
    state = state_bytes(model, precision, model.context_length)
    memory = MemoryBytes(
        weights=weights,
        gradients=gradients,
        optimizer=moments,
        activations=micro_batch.peak_bytes,
        training=weights + gradients + moments + micro_batch.peak_bytes,
        kv_cache_per_token=state_bytes(model, precision, model.context_length + 1) - state,
        state=state,
        checkpoint=sum(tensor.nbytes for tensor in model_tensors(model).values()) + moments,
    )
    return micro_batch.work, optimizer_step.work, memory


def state_bytes(model: LanguageModel, precision: Precision, length: int) -> int:
    """Bytes of the model's state for one sequence of this length while it writes."""
    with Meter() as meter, precision.for_decoding().autocast():
        state = model.new_state(1, length)
        n_bytes: int = meter.held_bytes
    del state  # kept alive until here
    return n_bytes


def _storages(tensors: list[Tensor]) -> dict[int, torch.UntypedStorage]:
    """The storages of the tensors, by address; matrices packed by oneDNN have none."""
    storages = (tensor.untyped_storage() for tensor in tensors if not tensor.is_mkldnn)
    return {storage._cdata: storage for storage in storages}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]

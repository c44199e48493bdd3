"""Fully sharded data parallelism: each rank keeps a part of every tensor (FSDP2; Zhao et al. 2023).

Data parallelism stores all weights, gradients and moments n times. Here every rank stores an n-th of each. A block's
parameters are gathered just before it computes and freed after it; its gradients are summed and sharded at once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from pellucid.runtime.distributed import device_of_exchanges


def shard(model: nn.Module, blocks: Iterable[nn.Module]) -> None:
    """Shard the parameters of each block, and those outside of blocks.

    The latter stay gathered from the embeddings to the logits, as tied embeddings are used at both ends.
    """
    mesh = init_device_mesh(device_of_exchanges(), (dist.get_world_size(),))
    for module in (*blocks, model):
        sharded = fully_shard(module, mesh=mesh, reshard_after_forward=True)
        # The trainer divides by the number of targets on all ranks, so gradients are summed. Averages would be wrong,
        # and gloo cannot multiply while it sums.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside, every rank holds all parameters as ordinary tensors; nothing is exchanged."""
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()

"""Tensor parallelism: the matrices of every block are cut in two, and each of two processes works with its halves.

    python lessons/many_machines/parallel_tensor.py

                          process 0          process 1
    x                     all of it          all of it          B × T × D numbers
    W_Q, W_K, W_V         heads 0 and 1      heads 2 and 3      cut by outputs: a head stays in one piece
    attention             heads 0 and 1      heads 2 and 3      a head needs no other head: nothing is sent
    W_O                   their columns      their columns      cut by inputs: each result is one part of a sum
                              └─────── + ────────┘              all-reduce: both get the sum, B × T × D numbers
    W_1, activation       first half of F    second half        cut by outputs
    W_2                   its columns        its columns        cut by inputs
                              └─────── + ────────┘              all-reduce

On the way back, the gradients of x are summed where it went into W_Q, W_K, W_V and W_1: four sums in a block. Norms
and embeddings are whole in both processes, which compute the same with them (Shoeybi et al. 2019, Megatron-LM).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from parallel_processes import beside_one_device, draw, forward_and_backward, largest_difference, print_table, start
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

MODEL = {"context_length": 32, "d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "qk_norm": True}

# "Colwise" is by outputs: the paper writes x A, where each column of A makes an output. nn.Linear keeps A transposed.
PLAN = {
    # W_Q, W_K and W_V read the same x. Told so, PyTorch adds up its three gradients before it sends them.
    "blocks.*.attention.sublayer": PrepareModuleInput(
        input_layouts=(Replicate(), None), desired_input_layouts=(Replicate(), None)
    ),
    "blocks.*.attention.sublayer.W_[QKV]": ColwiseParallel(),
    "blocks.*.attention.sublayer.W_O": RowwiseParallel(),
    "blocks.*.feed_forward.sublayer.W_1": ColwiseParallel(),
    "blocks.*.feed_forward.sublayer.W_2": RowwiseParallel(),
}


def ring_all_reduce(x: Tensor, group: dist.ProcessGroup | None = None) -> int:
    """Put the sum of every process's x into x; returns the bytes that this process sent (Patarasuk and Yuan 2009).

    The processes stand in a ring and x is cut into n chunks. Each chunk goes around once, and every process adds its
    part; then the finished chunks go around. Each process sends 2 (n - 1) / n of x, however large n is.
    """
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    chunks = x.view(-1).tensor_split(n)
    bytes_sent = 0
    for step in range(2 * (n - 1)):
        outgoing, next_one = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        incoming = torch.empty_like(next_one)
        sending = dist.isend(outgoing, group=group, group_dst=(rank + 1) % n)
        dist.recv(incoming, group=group, group_src=(rank - 1) % n)
        sending.wait()
        if step < n - 1:  # the first time around, reduce-scatter; the second time, all-gather
            incoming += next_one
        next_one.copy_(incoming)
        bytes_sent += outgoing.nbytes
    return bytes_sent


class SumsCounted(TorchDispatchMode):
    """Sees every operation while it is on, and counts the tensors that PyTorch sums over the processes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # of each, in bytes

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented  # the operations on its parts come here next
        if function is torch.ops._c10d_functional.all_reduce.default:
            self.sizes.append(args[0].nbytes)
        return function(*args, **(kwargs or {}))


def compare(dtype_name: str) -> dict[str, float]:
    """One update's logits and gradients, by all processes together and by this one alone."""
    alone, tokens_BT = draw(MODEL, dtype_name)
    n = dist.get_world_size()

    together = copy.deepcopy(alone)
    parallelize_module(together, init_device_mesh("cpu", (n,)), PLAN)
    for block in together.blocks:
        block.attention.sublayer.n_heads //= n  # those that are here
    with SumsCounted() as counted:
        logits_BTV = forward_and_backward(together, tokens_BT, tokens_BT[:, 1:].numel())
    for name, gain in together.named_parameters():
        if "query_norm" in name or "key_norm" in name:  # whole in every process, but used there by its own heads only
            ring_all_reduce(gain.grad)

    ours, theirs = logits_BTV.detach().clone(), logits_BTV.detach().clone()
    ring_all_reduce(ours)
    dist.all_reduce(theirs)
    return {
        **beside_one_device(together, logits_BTV, alone, tokens_BT),
        "our ring, largest difference": largest_difference([(ours, theirs)]),
        "sums": len(counted.sizes),
        "their bytes": sum(counted.sizes),
        "sent by a process": sum(counted.sizes) * 2 * (n - 1) / n,
    }


def main() -> None:
    rows = {name: start(compare, 2, name)[0] for name in ("float32", "float64")}
    print_table("two processes beside one", rows)


if __name__ == "__main__":
    main()

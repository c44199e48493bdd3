"""Expert parallelism: every token asks two of four experts, and the experts live in different processes.

    python lessons/many_machines/parallel_experts.py

In place of one feed-forward layer stand four, the *experts*. A small matrix, the *router*, picks two of them for each
token, and their answers are added, each times the router's probability (Shazeer et al. 2017; Lepikhin et al. 2020).
The layer has four times the weights, but no token is multiplied by more than half of them.

    process 0, with half of the batch                         process 1, with the other half
        router: who asks whom?                                    router: who asks whom?
          ├─────────────── all-to-all: vectors go to their experts ─────────────────┤
        experts 0 and 1 answer whoever came                       experts 2 and 3 answer whoever came
          ├─────────────── all-to-all: the answers come back ───────────────────────┤
        sum of the two answers                                    sum of the two answers

The gradients travel the same ways back. All but the experts is data parallel: both processes have it, and its gradients
are summed over them. An expert's gradient is complete where it lives, since all its tokens came there.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parallel_processes import beside_one_device, draw, forward_and_backward, print_table, start
from torch import Tensor, nn

from pellucid.model.feed_forward import FeedForward

MODEL = {"context_length": 32, "d_model": 32, "n_layers": 2, "n_heads": 4}
N_EXPERTS, TOP = 4, 2

# Shapes: N tokens, C choices of a token, R = N * C rows, sorted by expert; E experts, P processes; B, T, D as ever.


class Experts(nn.Module):
    """For each token, the answers of its TOP experts, weighted by the router's probabilities."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        sizes = {"d_model": d_model, "d_ff": 4 * d_model, "activation": F.gelu, "bias": False, "dropout": 0.0}
        self.router = nn.Linear(d_model, N_EXPERTS, bias=False)
        self.experts = nn.ModuleList(FeedForward(**sizes) for _ in range(N_EXPERTS))
        self.ask = ask_here

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, 1)
        weights_NC, choices_NC = self.router(x_ND).softmax(dim=-1).topk(TOP)
        by_expert_R = choices_NC.flatten().argsort(stable=True)
        token_R, weights_R1 = by_expert_R // TOP, weights_NC.flatten()[by_expert_R, None]
        answers_RD = self.ask(self.experts, x_ND[token_R], choices_NC.flatten().bincount(minlength=N_EXPERTS))
        return torch.zeros_like(x_ND).index_add(0, token_R, weights_R1 * answers_RD).view_as(x_BTD)


def ask_here(experts: nn.ModuleList, rows_RD: Tensor, counts: Tensor) -> Tensor:
    """The next `counts[i]` rows go to expert i; after the last expert comes the first again."""
    pieces = rows_RD.split(counts.tolist())
    return torch.cat([experts[i % len(experts)](piece) for i, piece in enumerate(pieces)])


def ask_everywhere(experts: nn.ModuleList, rows_RD: Tensor, counts_E: Tensor) -> Tensor:
    """Send the rows to the processes of their experts, answer those that come, and fetch the answers."""
    rank, going_PE = dist.get_rank(), counts_E.view(dist.get_world_size(), -1)
    coming_PE = torch.empty_like(going_PE)
    dist.all_to_all_single(coming_PE, going_PE)  # from each process, how many come for which of the experts here?
    going, coming = going_PE.sum(dim=1).tolist(), coming_PE.sum(dim=1).tolist()
    here = slice(rank * going_PE.size(1), (rank + 1) * going_PE.size(1))  # the other experts are never used here
    guests_RD = AllToAll.apply(rows_RD, going, coming)
    return AllToAll.apply(ask_here(experts[here], guests_RD, coming_PE.flatten()), coming, going)


class AllToAll(torch.autograd.Function):
    """The first `going[0]` rows go to process 0, the next `going[1]` to process 1 ...; gradients go the way back."""

    bytes_sent = 0  # PyTorch has this with a gradient too, but still as a private function

    @staticmethod
    def forward(ctx: Any, rows_RD: Tensor, going: list[int], coming: list[int]) -> Tensor:
        ctx.going, ctx.coming = going, coming
        arrived_RD = rows_RD.new_empty(sum(coming), rows_RD.size(1))
        dist.all_to_all_single(arrived_RD, rows_RD.contiguous(), coming, going)
        AllToAll.bytes_sent += rows_RD.nbytes * (sum(going) - going[dist.get_rank()]) // sum(going)
        return arrived_RD

    @staticmethod
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor, None, None]:
        return AllToAll.apply(gradient_RD, ctx.coming, ctx.going), None, None


def compare(dtype_name: str) -> dict[str, float]:
    """One update's logits and gradients, by all processes together and by this one alone."""
    alone, tokens_BT = draw(MODEL, dtype_name)
    for block in alone.blocks:
        block.feed_forward.sublayer = Experts(MODEL["d_model"]).to(getattr(torch, dtype_name))

    together, rank, n = copy.deepcopy(alone), dist.get_rank(), dist.get_world_size()
    for block in together.blocks:
        block.feed_forward.sublayer.ask = ask_everywhere
    logits_BTV = forward_and_backward(together, tokens_BT.chunk(n)[rank], n_targets=tokens_BT[:, 1:].numel())
    for name, parameter in together.named_parameters():
        if ".experts." not in name:
            dist.all_reduce(parameter.grad)
    parts = [torch.empty_like(logits_BTV) for _ in range(n)]
    dist.all_gather(parts, logits_BTV.detach())
    return {
        **beside_one_device(together, torch.cat(parts), alone, tokens_BT),
        "bytes sent by a process": AllToAll.bytes_sent,
    }


def main() -> None:
    print_table("two processes beside one", {name: start(compare, 2, name)[0] for name in ("float32", "float64")})


if __name__ == "__main__":
    main()

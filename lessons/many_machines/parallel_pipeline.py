"""Pipeline parallelism: the first blocks in one process, the last in another, and small batches flow through.

    python lessons/many_machines/parallel_pipeline.py

    process 0: embedding ─► blocks 1, 2  ── x, B × T × D numbers ─►  process 1: blocks 3, 4 ─► norm ─► unembedding
                                         ◄──── its gradients ─────

With one batch, one process would always wait for the other. So the batch is cut into m micro-batches: while process 1
works on the first, process 0 works on the next. Waiting is left at the two ends of an update, the *bubble*: with p
processes a share of (p - 1) / (m + p - 1) of the time.

GPipe (Huang et al. 2019) does all forward passes, then all backward passes; in between it keeps the activations of m
micro-batches. 1F1B (with a flush, as here: Narayanan et al. 2021) turns back as soon as it can and keeps p at most; its
bubble is as large.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from parallel_processes import beside_one_device, draw, print_table, start, timetable
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import NoCache
from pellucid.objectives.next_token import cross_entropy

MODEL = {"context_length": 32, "d_model": 32, "n_layers": 4, "n_heads": 4, "tied_embeddings": True}
MICRO_BATCHES = 4
SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


class FirstHalf(nn.Module):
    """The decoder up to its middle."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.embeddings, self.positions = decoder.embeddings, decoder.positions
        self.blocks = decoder.blocks[: decoder.n_layers // 2]

    def forward(self, tokens_BT: Tensor) -> Tensor:
        positions_T = torch.arange(tokens_BT.size(1))
        x_BTD = self.positions.add_to_embeddings(self.embeddings.embed(tokens_BT), positions_T)
        for block in self.blocks:
            x_BTD = block(x_BTD, NoCache())
        return x_BTD


class SecondHalf(nn.Module):
    """The decoder from its middle on. With tied embeddings both ends need the matrix: each has a copy."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.blocks = decoder.blocks[decoder.n_layers // 2 :]
        self.final_norm, self.embeddings = decoder.final_norm, decoder.embeddings

    def forward(self, x_BTD: Tensor) -> Tensor:
        for block in self.blocks:
            x_BTD = block(x_BTD, NoCache())
        return self.embeddings.unembed(self.final_norm(x_BTD))


class StageWithDiary(PipelineStage):
    """PyTorch's stage, which receives, computes and sends. This one writes down what it does."""

    diary: tuple[str, ...] = ()
    bytes_sent = 0

    def get_fwd_send_ops(self, micro_batch: int) -> list[dist.P2POp]:
        return self.write_down(f"F{micro_batch}", super().get_fwd_send_ops(micro_batch))

    def get_bwd_send_ops(self, micro_batch: int) -> list[dist.P2POp]:
        return self.write_down(f"B{micro_batch}", super().get_bwd_send_ops(micro_batch))

    def write_down(self, work: str, sends: list[dist.P2POp]) -> list[dist.P2POp]:
        self.diary += (work,)
        self.bytes_sent += sum(send.tensor.nbytes for send in sends)
        return sends


def compare(schedule_name: str) -> dict[str, Any]:
    """One update's logits and gradients, by both processes together and by this one alone."""
    alone, tokens_BT = draw(MODEL, "float64")
    inputs_BT, targets_BT, rank = tokens_BT[:, :-1], tokens_BT[:, 1:], dist.get_rank()

    together = copy.deepcopy(alone)  # all of it, to keep the lesson short; each process uses its half
    stage = StageWithDiary((FirstHalf, SecondHalf)[rank](together), rank, 2, torch.device("cpu"))
    schedule = SCHEDULES[schedule_name](
        stage,
        MICRO_BATCHES,
        loss_fn=lambda logits_BTV, some_BT: cross_entropy(logits_BTV.mT, some_BT).sum() / targets_BT.numel(),
        scale_grads=False,  # the loss is divided already, by the targets of all micro-batches
    )
    logits_BTV = schedule.step(inputs_BT) if rank == 0 else schedule.step(target=targets_BT)  # process 0 gets None
    dist.all_reduce(together.embeddings.embedding_VD.grad)  # the matrix was used at both ends: the gradients add up

    differences = beside_one_device(together, logits_BTV, alone, tokens_BT)
    return {"differences": differences, "bytes sent": stage.bytes_sent, "diary": stage.diary}


def main() -> None:
    rows = {}
    for name in SCHEDULES:
        first, second = start(compare, 2, name)
        table = timetable([first["diary"], second["diary"]])
        waiting = sum(row.count("··") for row in table) / sum(map(len, table))
        print(f"\n{name}: {waiting:.1%} of the time is waiting; (p - 1) / (m + p - 1) = {1 / (MICRO_BATCHES + 1):.1%}")
        for process, row in enumerate(table):
            print(f"    process {process}   {' '.join(row)}")
        sent = {"bytes sent by process 0": first["bytes sent"], "by process 1": second["bytes sent"]}
        rows[name] = first["differences"] | sent
    print_table("two processes beside one", rows)


if __name__ == "__main__":
    main()

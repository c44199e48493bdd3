"""What the scripts parallel_tensor.py, parallel_pipeline.py and parallel_experts.py share; it has nothing to run.

`start` calls one function in several processes that can send each other tensors: what torchrun does, on one machine.
The processes meet at a file, the *rendezvous*: each writes there where it listens. From then on each has a number, its
*rank*, and torch.distributed carries tensors between them: on GPUs by NCCL, here, on the CPU, by Gloo.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing import start_processes

from pellucid.config.model import DecoderConfig
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.objectives.next_token import cross_entropy

VOCAB_SIZE, BATCH_SIZE = 64, 8


def start(work: Callable[..., Any], n_processes: int, *arguments: Any, method: str = "spawn") -> list[Any]:
    """What `work(*arguments)` returns in each process, in the order of ranks; it comes back as JSON.

    `work` stands at the top of a module, where a new process can import it. If one process fails, the others are
    ended too, and the first error that is noticed is raised here.
    """
    with tempfile.TemporaryDirectory() as folder:
        start_processes(one_process, (Path(folder), n_processes, work, arguments), n_processes, start_method=method)
        answers = [(Path(folder) / f"{rank}.json").read_text("utf-8") for rank in range(n_processes)]
    return [json.loads(answer) for answer in answers]


def one_process(
    rank: int, folder: Path, n_processes: int, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)  # the processes share the cores
    meeting_point = (folder / "rendezvous").as_uri()
    patience = timedelta(minutes=10)  # then a process that waits for another gives up
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=n_processes, timeout=patience)
    (folder / f"{rank}.json").write_text(json.dumps(work(*arguments)), encoding="utf-8")
    dist.destroy_process_group()


def draw(model: dict[str, Any], dtype_name: str) -> tuple[Decoder, Tensor]:
    """A small decoder with random weights, and tokens (B, T + 1) for it: the same in every process."""
    torch.manual_seed(0)
    config = DecoderConfig.model_validate(model)
    decoder = build_model(config, VOCAB_SIZE).to(getattr(torch, dtype_name))
    return decoder, torch.randint(VOCAB_SIZE, (BATCH_SIZE, config.context_length + 1))


def forward_and_backward(decoder: Decoder, tokens_BT: Tensor, n_targets: int) -> Tensor:
    """The logits; the gradients are those of the nats of these tokens, divided by the targets of all (equation 16)."""
    logits_BTV, targets_BT = decoder(tokens_BT[:, :-1]), tokens_BT[:, 1:]
    (cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten()).sum() / n_targets).backward()
    return logits_BTV


def beside_one_device(
    together: Decoder, logits_BTV: Tensor | None, alone: Decoder, tokens_BT: Tensor
) -> dict[str, float]:
    """How far the logits and gradients of any process are from those of one device that does all.

    A process that has no logits gives None, and has no gradients of what it does not use.
    """
    expected_BTV = forward_and_backward(alone, tokens_BT, tokens_BT[:, 1:].numel())
    pairs = zip(together.parameters(), alone.parameters(), strict=True)
    gradients = [(whole(ours.grad), theirs.grad) for ours, theirs in pairs if ours.grad is not None]
    logits = [] if logits_BTV is None else [(logits_BTV, expected_BTV)]
    largest = torch.tensor([largest_difference(logits), largest_difference(gradients)], dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return dict(zip(["logits, largest difference", "gradients, largest difference"], largest.tolist(), strict=True))


def whole(gradient: Tensor) -> Tensor:
    """A DTensor is cut: its parts are fetched from the other processes."""
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def largest_difference(pairs: list[tuple[Tensor, Tensor]]) -> float:
    return max((torch.dist(ours, theirs, p=torch.inf).item() for ours, theirs in pairs), default=0.0)


def timetable(diaries: list[list[str]]) -> list[list[str]]:
    """Who does what when, if all work takes one unit of time: F2 is micro-batch 2 forward, B2 backward, "··" waiting.

    Forward needs the same of the process before, backward that of the process after.
    """
    to_do, rows, done = [list(diary) for diary in diaries], [[] for _ in diaries], set()
    while any(to_do):
        for process, work in enumerate(to_do):
            neighbour = process + (1 if work and work[0].startswith("B") else -1)
            ready = work and (neighbour in (-1, len(rows)) or (neighbour, work[0]) in done)
            rows[process].append(work.pop(0) if ready else "··")
        done = {(process, work) for process, row in enumerate(rows) for work in row}
    return rows


def print_table(name: str, rows: dict[str, dict[str, float]]) -> None:
    """A row and a column for each key."""
    columns = list(next(iter(rows.values())))
    print(f"\n| {name} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for row, numbers in rows.items():
        shown = (f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers.values())
        print(f"| {row} | {' | '.join(shown)} |", flush=True)

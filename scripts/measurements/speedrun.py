"""The gain of each trick of configs/speedrun_shakespeare.yaml: the time to its loss with one of them off at a time.

Remakes: speedrun_ablation
Takes: half an hour
Needs: tinyshakespeare.txt

A run without a trick may need more steps. So each gets the shortest schedule after which the loss on the whole
validation part is at most 1.8857 nats per character: of a list of schedules, each 8 % longer than the one before, found
by halving the list. The seconds are the CPU time of its updates on one thread, to which other programs add little.
A line gives the medians over the seeds. Each run has a process to itself.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from results import ROOT, Entry
from runs import in_a_process

from pellucid.config.load import load_run_config
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.recipe import build_trainer, evaluate, prepare_data
from pellucid.training import optimizers

CONFIG = ROOT / "configs/speedrun_shakespeare.yaml"
TARGET = 1.8857
SCHEDULES = [round(100 * 1.08**longer) for longer in range(25)]  # from 100 to 634 steps

ADAMW = "optimizer={type: adamw, lr: 6e-3, weight_decay: 0.1}"
WARMUP = "schedule={type: warmup_stable_decay, warmup_steps: 10, decay_fraction: 0.5}"
FULL = "nothing: the recipe as it is"
WITHOUT = {
    FULL: [],
    "Muon; AdamW with warmup instead": [ADAMW, WARMUP],
    "a short memory: momentum 0.95": ["optimizer.momentum=0.95"],
    "the decay of the learning rate": ["schedule={type: constant}"],
    "narrow layers; 192 wide, with three heads": ["model.d_model=192", "model.n_heads=3"],
    "two layers; four": ["model.n_layers=4"],
    "two heads; one": ["model.n_heads=1"],
    "RoPE; learned positions": ["model.position={type: learned}"],
    "RoPE's short clocks; base 10,000": ["model.position={type: rope}"],
    "ReLU squared; GELU": ["model.activation=gelu"],
    "zero projections": ["model.zero_init_projections=false"],
    "wide first embeddings; 0.02": ["model.embedding_std=0.02"],
    "QK-norm": ["model.qk_norm=false"],
    "the soft cap of the logits": ["model.logit_soft_cap=null"],
    "explicit attention; fused": ["model.attention=fused"],
    "Muon in batches; PyTorch's": ["PyTorch's Muon"],
    "freed memory kept": ["freed memory goes back"],
}


def measure(text: Path, *, seeds: int = 2) -> Iterator[Entry]:
    by_trick: dict[str, list[tuple[int, float] | None]] = {}
    for name, without in WITHOUT.items():
        by_trick[name] = [in_a_process(seconds_to_target, without, text, seed) for seed in range(seeds)]
        print(name, by_trick[name], flush=True)
    yield Entry("speedrun_ablation", as_table(by_trick), ["speedrun_shakespeare"])


def as_table(by_trick: dict[str, list[tuple[int, float] | None]]) -> dict[str, dict[str, Any]]:
    """Medians over the seeds, beside the recipe as it is. A trick without which one seed never got there has none."""
    table: dict[str, dict[str, Any]] = {}
    for name, of_seeds in by_trick.items():
        arrived = [each for each in of_seeds if each]
        if len(arrived) < len(of_seeds):
            table[name] = {"steps": f"more than {SCHEDULES[-1]}", "seconds": None, "times as long": None}
        else:
            steps, seconds = (median(each) for each in zip(*arrived, strict=True))
            full = table.get(FULL, {"seconds": seconds})["seconds"]
            table[name] = {"steps": steps, "seconds": seconds, "times as long": seconds / full}
    return table


def seconds_to_target(without: list[str], text_file: Path, seed: int) -> tuple[int, float] | None:
    """Steps and seconds of the shortest schedule that gets there, or None."""
    if "freed memory goes back" not in without:
        keep_freed_memory()
    if "PyTorch's Muon" in without:
        optimizers.Muon = lambda *args, dtype, world, **settings: torch.optim.Muon(*args, **settings)
    overrides = [f"corpus.files=[{text_file}]", f"seed={seed}", *(o for o in without if "=" in o)]
    torch.set_num_threads(1)
    seconds: dict[int, float] = {}

    def reaches_the_target(steps: int) -> bool:
        config = load_run_config(CONFIG, [*overrides, f"train.steps={steps}"])
        data = prepare_data(config, Path("data"))
        trainer, _ = build_trainer(config, data)
        started = time.process_time()
        for _ in range(steps):
            trainer.update()
        seconds[steps] = time.process_time() - started
        return evaluate(config, data, trainer.model, trainer.precision).loss_nats_per_token <= TARGET

    place = bisect_left(SCHEDULES, True, key=reaches_the_target)
    return None if place == len(SCHEDULES) else (SCHEDULES[place], seconds[SCHEDULES[place]])

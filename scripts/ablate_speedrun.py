"""What each trick of configs/speedrun_shakespeare.yaml gains: the time to its loss with one of them off at a time.

    python scripts/ablate_speedrun.py tinyshakespeare.txt --seeds 2

A run without a trick may need more steps. So each is tried with longer and longer schedules, 8 % longer each time,
until the loss on the whole validation part is at most 1.8857 nats per character; the seconds are those of its updates.
A line gives the medians over the seeds. Each run has a process to itself.
"""

from __future__ import annotations

import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from results import parser, record

from pellucid.config.load import load_run_config
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.recipe import build_trainer, evaluate, prepare_data
from pellucid.training import optimizers

CONFIG = Path(__file__).parent.parent / "configs" / "speedrun_shakespeare.yaml"
TARGET = 1.8857
FEWEST_STEPS, LONGER, MOST_STEPS = 100, 1.08, 500

ADAMW = "optimizer={type: adamw, lr: 4e-3, weight_decay: 0.1}"
WARMUP = "schedule={type: warmup_stable_decay, warmup_steps: 10, decay_fraction: 0.5}"
FULL = "nothing: the recipe as it is"
WITHOUT = {
    FULL: [],
    "Muon; AdamW with warmup instead": [ADAMW, WARMUP],
    "a short memory: momentum 0.95": ["optimizer.momentum=0.95"],
    "the decay of the learning rate": ["schedule={type: constant}"],
    "two wide layers; four of 128": ["model.n_layers=4", "model.d_model=128", "model.d_ff=512", "model.n_heads=2"],
    "wide heads; six of 32": ["model.n_heads=6"],
    "RoPE; learned positions": ["model.position={type: learned}"],
    "RoPE's short clocks; base 10,000": ["model.position={type: rope}"],
    "ReLU squared; GELU": ["model.activation=gelu"],
    "zero projections": ["model.zero_init_projections=false"],
    "wide first embeddings; 0.02": ["model.embedding_std=0.02"],
    "QK-norm": ["model.qk_norm=false"],
    "the soft cap of the logits": ["model.logit_soft_cap=null"],
    "bfloat16; float32": ["train.precision=fp32"],
    "explicit attention; fused": ["model.attention=fused"],
    "Muon in batches; PyTorch's": ["PyTorch's Muon"],
    "freed memory kept": ["freed memory goes back"],
}


def seconds_to_target(without: list[str], text_file: Path, seed: int) -> tuple[int, float] | None:
    """Steps and seconds of the shortest schedule that gets there, or None."""
    if "freed memory goes back" not in without:
        keep_freed_memory()
    if "PyTorch's Muon" in without:
        optimizers.Muon = lambda *args, dtype, world, **settings: torch.optim.Muon(*args, **settings)
    overrides = [f"corpus.files=[{text_file}]", f"seed={seed}", *(o for o in without if "=" in o)]
    steps = FEWEST_STEPS
    while steps <= MOST_STEPS:
        config = load_run_config(CONFIG, [*overrides, f"train.steps={steps}"])
        data = prepare_data(config, Path("data"))
        trainer, _ = build_trainer(config, data)
        seconds = sum(trainer.update().seconds for _ in range(steps))
        if evaluate(config, data, trainer.model, trainer.precision).loss_nats_per_token <= TARGET:
            return steps, seconds
        steps = round(steps * LONGER)
    return None


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("text", type=Path)
    arguments.add_argument("--seeds", type=int, default=2)
    options = arguments.parse_args()
    print("| without | steps | seconds | times as long |\n|---|---:|---:|---:|")
    figures = {}
    for name, without in WITHOUT.items():
        found = []
        for seed in range(options.seeds):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                found.append(process.submit(seconds_to_target, without, options.text.resolve(), seed).result())
        if None in found:
            figures[name] = {"steps": f"more than {MOST_STEPS}", "seconds": None, "times as long": None}
            print(f"| {name} | more than {MOST_STEPS} | | |", flush=True)
            continue
        steps, seconds = (statistics.median(each) for each in zip(*found, strict=True))
        full = figures[FULL]["seconds"] if figures else seconds
        figures[name] = {"steps": steps, "seconds": seconds, "times as long": seconds / full}
        print(f"| {name} | {steps:.0f} | {seconds:.1f} | {seconds / full:.2f} |", flush=True)
    if options.record:
        record("speedrun_ablation", figures, ["speedrun_shakespeare"])


if __name__ == "__main__":
    main()

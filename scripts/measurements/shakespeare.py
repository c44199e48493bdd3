"""The configs for tiny Shakespeare, on a GPU the one for it: seconds, evaluations included, and the loss at the end.

Remakes: shakespeare
Takes: 3 minutes; with --nanogpt 5
Needs: tinyshakespeare.txt

--nanogpt names a clone of nanoGPT. Its recipe for a CPU, as its README gives it, then trains on the same text before
our runs. It needs the package `requests`.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch
from results import ROOT, Entry, here
from runs import pellucid

from pellucid.training.metrics import read_rows

RUNS = {f"speedrun, seed {seed}": ["speedrun_shakespeare.yaml", f"seed={seed}"] for seed in range(5)}
RUNS |= {"longer": ["shakespeare_char.yaml"]}
NANOGPT = """--device=cpu --compile=False --eval_iters=20 --log_interval=1 --block_size=64 --batch_size=12 --n_layer=4
--n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"""
RUNS_ON_A_GPU = {"speedrun, seed 0": ["speedrun_shakespeare_gpu.yaml"]}


def measure(text: Path, *, nanogpt: Path | None = None) -> Iterator[Entry]:
    is_gpu = torch.cuda.is_available()
    runs, figures = RUNS_ON_A_GPU if is_gpu else RUNS, {}
    if nanogpt:
        figures["nanoGPT's recipe"] = train_nanogpt(nanogpt, text, Path("nanoGPT"))
    for name, (config, *overrides) in runs.items():
        files = f"corpus={{type: text, files: [{json.dumps(str(text))}]}}"
        pellucid("train", ROOT / "configs" / config, *overrides, files, "--run-dir", name)
        last = read_rows(Path(name, "metrics.jsonl"))[-1]
        figures[name] = {"seconds": last["elapsed_seconds"], "nats per character": last["val_loss"]}
        if is_gpu:
            figures[name]["steps"] = last["step"]
    if nanogpt:
        ours = median(figures[name]["seconds"] for name in runs if name.startswith("speedrun"))
        figures["nanoGPT's recipe"]["times as long"] = figures["nanoGPT's recipe"]["seconds"] / ours
    yield Entry(here("shakespeare"), figures, {config.removesuffix(".yaml") for config, *_ in runs.values()})


def train_nanogpt(program: Path, text: Path, folder: Path) -> dict[str, float]:
    """The sum of the times that it prints for its updates, evaluations among them; the loss is its last estimate."""
    shutil.copytree(program, folder, ignore=shutil.ignore_patterns(".git"))
    data = folder / "data" / "shakespeare_char"
    shutil.copy(text, data / "input.txt")
    subprocess.run([sys.executable, data / "prepare.py"], check=True)
    command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *NANOGPT.split()]
    log = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    milliseconds = [float(time) for time in re.findall(r"^iter .* time ([\d.]+)ms", log, re.MULTILINE)]
    losses = [float(loss) for loss in re.findall(r"val loss ([\d.]+)", log)]
    return {"seconds": sum(milliseconds) / 1000, "nats per character": losses[-1]}

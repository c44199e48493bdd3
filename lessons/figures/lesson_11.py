"""The figures of lesson 11."""

from __future__ import annotations

import csv

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from pellucid.config.load import load_run_config
from pellucid.course.exercises import LESSONS
from pellucid.runs.cost_of_run import cost_of_run
from pellucid.runtime.precision import Precision

BLUE, ORANGE, GREY = "#3b6fb6", "#d9742b", "#777777"
ROOT = LESSONS.parent
PARTS = {"weights": "#3b6fb6", "gradients": "#7fa6d6", "optimizer": "#b9cde8", "activations": "#d9742b"}


def memory() -> Figure:
    """The memory of an update of the demo's shape with AdamW, by part: a batch whole, in pieces, and recomputed."""
    variants = {
        "24 rows at once": [],
        "24 rows at once,\nrecomputed": ["train.gradient_checkpointing=block"],
        "8 pieces of 3 rows": ["train.batch_size=3", "train.gradient_accumulation_steps=8"],
    }
    figure, axes = plt.subplots(figsize=(8.5, 3), layout="constrained")
    for y, changes in enumerate(variants.values()):
        adamw = ["optimizer={type: adamw, lr: 0.001}"]
        config = load_run_config(ROOT / "configs/fables.yaml", [*adamw, *changes])
        parts = cost_of_run(config, 2048, Precision(torch.device("cpu"), torch.float32)).memory_bytes
        left = 0.0
        for part, color in PARTS.items():
            megabytes = getattr(parts, part) / 1e6
            axes.barh(y, megabytes, left=left, color=color, height=0.6, label=part if y == 0 else None)
            left += megabytes
        axes.text(left + 3, y, f"{left:.0f} MB", va="center", color=GREY)
    axes.set_yticks(range(len(variants)), list(variants))
    axes.invert_yaxis()
    axes.set(xlabel="MB in an update, numbers of 4 bytes")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    axes.legend(frameon=False, loc="lower right")
    return figure


def scaling() -> Figure:
    """Excess over the exact floor against compute, for all runs but the largest, which the reader is to predict."""
    with open(ROOT / "docs/experiments/scaling/results.csv", encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    columns = ("flops", "val_loss", "accuracy.recall")
    flops, loss, recall = (np.array([float(run[column]) for run in runs]) for column in columns)
    floor = float(runs[0]["floor"])
    known = flops < flops.max()
    figure, axes = plt.subplots(figsize=(8.5, 4.4), layout="constrained")
    for chosen, color, name in (
        (known & (recall < 0.3), BLUE, "recall at most 11 in 100"),
        (known & (recall > 0.3), ORANGE, "recall 50 in 100 and more"),
    ):
        axes.loglog(flops[chosen], loss[chosen] - floor, "o", color=color, label=name)
    axes.set(
        xlim=(1.3e11, 4e13), ylim=(0.03, 2), xlabel="FLOPs of training", ylabel="loss above the exact floor (nats)"
    )
    axes.set_yticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.minorticks_off()
    axes.legend(frameon=False)
    return figure

"""One update of a config, shared out among many GPUs in each of five ways, on paper: memory, what is sent, time.

    python scripts/many_devices.py configs/gpt2_124m.yaml --devices 64
    python scripts/many_devices.py configs/gpt2_124m.yaml train.precision=fp32 --devices 64 --tflops 67

docs/many_machines.md says how to read it. `simulate_devices.py` compares three models.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from devices_on_paper import (
    Cluster,
    Update,
    bubble_fraction,
    efficiency,
    layouts,
    memory_of,
    step_of,
    update_on_one_device,
)

from pellucid.config.load import load_run_config
from pellucid.config.model import DecoderConfig
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import duration, model_flops_utilization
from pellucid.runs.cost_of_run import vocab_size_of
from pellucid.runtime.precision import resolve_precision

# NVIDIA's H100 SXM: 80 GB, and 450 GB/s by NVLink 4 in each direction, of which a ring reaches some 80 %.
MEMORY_BYTES, NVLINK_BYTES_PER_SECOND = 80e9, 360e9
UTILIZATION = 0.4  # of the peak, by a GPU that waits for no other

ASSUMED = """\
    weights, gradients and moments have 4 bytes a number, also when they are sent
    a GPU alone uses {:.0%} of its peak, however few its rows
    to sum over n GPUs (all-reduce), each sends 2(n-1)/n of the bytes; to gather, (n-1)/n (Patarasuk and Yuan 2009)
    ddp sums gradients during the last backward pass (Li et al. 2020)
    fsdp gathers weights twice and scatters gradients once a micro-batch, while it computes (Rajbhandari et al. 2020)
    tp sums activations twice a block and pass, and waits for them (Shoeybi et al. 2019; Korthikanti et al. 2022)
    pp takes single rows, one forward, one back; p stages and m rows make a bubble of (p-1)/(m+p-1) (Huang et al. 2019)
    not counted: latency, waiting for the slowest GPU, evaluating, saving
sources and reasons: docs/many_machines.md"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("config", type=Path)
    arguments.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config")
    arguments.add_argument("--devices", type=int, default=8, help="how many GPUs (default: 8)")
    arguments.add_argument("--per-node", type=int, default=8, help="GPUs in a node (default: 8)")
    arguments.add_argument("--tflops", type=float, default=989, help="peak of a GPU in TFLOP/s (default: 989)")
    arguments.add_argument("--bandwidth", type=float, default=40, help="GB/s from a GPU to other nodes (default: 40)")
    options = arguments.parse_intermixed_args()

    config = load_run_config(options.config, options.overrides)
    if not isinstance(config.model, DecoderConfig):
        arguments.error(f"{options.config}: model.type is {config.model.type}; give the config of a decoder")
    precision = resolve_precision("cpu", "fp32" if config.train.precision == "fp32" else "bf16")
    machine = gpu(options.tflops, precision.dtype)
    update = update_on_one_device(config, vocab_size_of(config), precision, machine)
    print(devices_table(update, gpus(options.devices, options.per_node, options.bandwidth), machine))


def gpu(teraflops: float, dtype: torch.dtype) -> Machine:
    """One of this peak, which is always at work at the usual share of it."""
    return Machine(f"GPU, {str(dtype).removeprefix('torch.')}", UTILIZATION * teraflops * 1e12, math.inf, 0.0)


def gpus(n_devices: int, devices_per_node: int, gigabytes_per_second: float) -> Cluster:
    """H100s, which send so much each to other nodes."""
    return Cluster(n_devices, devices_per_node, NVLINK_BYTES_PER_SECOND, gigabytes_per_second * 1e9, MEMORY_BYTES)


def devices_report(update: Update, cluster: Cluster, machine: Machine) -> dict[str, Any]:
    """All figures, bytes and seconds of a device and step. None: cannot be shared out so."""
    peak = machine.flops_per_second / UTILIZATION
    report: dict[str, Any] = {
        "update": asdict(update),
        "cluster": {**asdict(cluster), "peak_flops_per_second": peak, "utilization": UTILIZATION},
    }
    for name, layout in layouts(update, cluster).items():
        if layout is None:
            report[name] = None
            continue
        memory, step = memory_of(update, layout), step_of(update, cluster, layout)
        mfu = model_flops_utilization(update.model_flops / cluster.n_devices, step.seconds, peak)
        report[name] = {
            **asdict(layout),
            "memory_bytes": {**asdict(memory), "total": memory.total},
            "fits": memory.total <= cluster.memory_bytes_per_device,
            "step": {**asdict(step), "seconds": step.seconds},
            "bubble_fraction": bubble_fraction(layout.stages, step.micro_batches),
            "scaling_efficiency": efficiency(update, cluster, step),
            "tokens_per_second": update.rows * update.tokens_per_row / step.seconds,
            "model_flops_utilization": mfu,
        }
    return report


def devices_table(update: Update, cluster: Cluster, machine: Machine) -> str:
    """The figures side by side, and what they assume."""
    report = devices_report(update, cluster, machine)
    ways = {name: figures for name, figures in report.items() if name not in ("update", "cluster")}

    def line(name: str, shown: Callable[[dict[str, Any]], str]) -> str:
        cells = ["-" if way is None else shown(way) for way in ways.values()]
        return f"    {name:<32}" + "".join(f"{cell:>12}" for cell in cells)

    def gigabytes(name: str, part: str, key: str) -> str:
        return line(name, lambda way: f"{way[part][key] / 1e9:,.2f}")

    def seconds(name: str, key: str) -> str:
        return line(name, lambda way: duration(way["step"][key]) if way["step"][key] else "0")

    def percent(name: str, share: Callable[[dict[str, Any]], float]) -> str:
        return line(name, lambda way: f"{share(way):.0%}")

    lines = [
        f"{cluster.n_devices:,} GPUs, {cluster.devices_per_node:,} in a node; an update reads {update.rows:,} rows of "
        f"{update.tokens_per_row:,} tokens",
        f"{'':36}" + "".join(f"{name:>12}" for name in ways),
        line("copies of the model", lambda way: f"{way['replicas']:,}"),
        line("GPUs that share a layer (tp)", lambda way: f"{way['tensor']}"),
        line("stages of layers (pp)", lambda way: f"{way['stages']}"),
        line("micro-batches of a copy", lambda way: f"{way['step']['micro_batches']:,}"),
        "memory of a GPU in GB",
        *(gigabytes(kind, "memory_bytes", kind) for kind in ("weights", "gradients", "optimizer", "activations")),
        gigabytes("gathered for a moment", "memory_bytes", "gathered"),
        gigabytes("total", "memory_bytes", "total"),
        line(f"fits in {cluster.memory_bytes_per_device / 1e9:.0f} GB", lambda way: "yes" if way["fits"] else "no"),
        "sent by a GPU in a step, in GB",
        gigabytes("gradients (fsdp: and weights)", "step", "replica_bytes"),
        gigabytes("sums within layers", "step", "tensor_bytes"),
        gigabytes("from stage to stage", "step", "stage_bytes"),
        "time of a step",
        seconds("computing", "computing_seconds"),
        seconds("bubble", "bubble_seconds"),
        seconds("sending", "sending_seconds"),
        seconds("  of it while computing", "hidden_seconds"),
        seconds("in all", "seconds"),
        percent("bubble, of a stage's time", lambda way: way["bubble_fraction"]),
        percent("scaling efficiency", lambda way: way["scaling_efficiency"]),
        percent("model FLOPs utilization (MFU)", lambda way: way["model_flops_utilization"]),
        line("tokens per second", lambda way: f"{way['tokens_per_second']:,.0f}"),
        "assumed",
        f"    {machine.where}, peak {report['cluster']['peak_flops_per_second'] / 1e12:,.0f} TFLOP/s; sends "
        f"{cluster.bytes_per_second_inside / 1e9:,.0f} GB/s inside a node, "
        f"{cluster.bytes_per_second_between / 1e9:,.0f} GB/s to other nodes",
        ASSUMED.format(UTILIZATION),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""The output of `pellucid cost`: the cost of a run, and how long it should take on this machine."""

from dataclasses import asdict
from typing import Any

from pellucid.cost.build import RunCost
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import duration, model_flops_utilization, step_seconds
from pellucid.tables import folded, table


def cost_report(cost: RunCost, machine: Machine) -> dict[str, Any]:
    """All figures, in the units of their names, as `pellucid cost --json` prints them."""
    seconds = step_seconds(cost.step_work, machine)
    utilization = model_flops_utilization(cost.training_flops_per_step, seconds, machine.flops_per_second)
    return {
        **asdict(cost.model),
        "memory_bytes": asdict(cost.memory_bytes),
        "step": {"tokens": cost.tokens_per_step, **asdict(cost.step_work)},
        "predicted": {
            "seconds_per_step": seconds,
            "tokens_per_second": cost.tokens_per_step / seconds,
            "training_seconds": cost.steps * seconds,
            "model_flops_utilization": utilization,
        },
        "machine": asdict(machine),
    }


def cost_table(cost: RunCost, machine: Machine) -> str:
    """The main figures, on one screen."""
    report = cost_report(cost, machine)
    parameters, memory, predicted = report["parameters"], report["memory_bytes"], report["predicted"]
    forward, training = report["forward_flops_per_token"], report["training_flops_per_token"]
    cache, state = memory.pop("kv_cache_per_token"), memory.pop("state")
    blocks: dict[tuple[str, ...], list[tuple[str, ...]]] = {
        ("parameters", "", ""): [
            (part, f"{n:,}", f"{n / parameters['total']:.1%}") for part, n in parameters.items() if n
        ],
        ("FLOPs per token", "forward", "training"): [
            (part, f"{forward[part]:,}", f"{training[part]:,}") for part in forward if forward[part]
        ],
        ("memory in MB", ""): [
            *((kind, f"{n_bytes / 1e6:,.1f}") for kind, n_bytes in memory.items()),
            *([("KV cache, per 1,000 tokens", f"{cache / 1e3:,.1f}")] if cache else []),
            ("state of a full context", f"{state / 1e6:,.3f}"),
        ],
        ("predicted time", "on this machine"): [
            ("large matrix products", f"{machine.flops_per_second / 1e9:,.0f} GFLOP/s"),
            ("reading and writing memory", f"{machine.bytes_per_second / 1e9:,.1f} GB/s"),
            ("starting an operation", f"{machine.seconds_per_operation * 1e6:,.1f} us"),
            ("one step", duration(predicted["seconds_per_step"])),
            (f"all {cost.steps:,} steps", duration(predicted["training_seconds"])),
            ("tokens per second", f"{predicted['tokens_per_second']:,.0f}"),
            ("model FLOPs utilization (MFU)", f"{predicted['model_flops_utilization']:.0%} of the peak"),
        ],
    }
    tables = [
        table(heading, [(name.replace("_", " "), *cells) for name, *cells in rows]) for heading, rows in blocks.items()
    ]
    return "\n\n".join(tables) + "\n" + folded(f"({machine.where}, whose speed was measured just now)")

"""The output of `pellucid cost`: the cost of a run, and how long it should take on this machine."""

from dataclasses import asdict
from typing import Any

from pellucid.cost.build import RunCost
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import duration, model_flops_utilization, step_seconds


def cost_report(cost: RunCost, machine: Machine) -> dict[str, Any]:
    """All figures, in the units of their names, as `pellucid cost --json` prints them."""
    seconds = step_seconds(cost.step_work, machine)
    return {
        **asdict(cost.model),
        "memory_bytes": asdict(cost.memory_bytes),
        "step": {"tokens": cost.tokens_per_step, **asdict(cost.step_work)},
        "predicted": {
            "seconds_per_step": seconds,
            "tokens_per_second": cost.tokens_per_step / seconds,
            "training_seconds": cost.steps * seconds,
            "model_flops_utilization": model_flops_utilization(
                cost.training_flops_per_step, seconds, machine.flops_per_second
            ),
        },
        "machine": asdict(machine),
    }


def cost_table(cost: RunCost, machine: Machine) -> str:
    """The main figures, on one screen."""
    report = cost_report(cost, machine)
    parameters, forward, training, memory, predicted = (
        report[part]
        for part in ("parameters", "forward_flops_per_token", "training_flops_per_token", "memory_bytes", "predicted")
    )
    cache, state = memory.pop("kv_cache_per_token"), memory.pop("state")
    lines = [
        "parameters",
        *(_line(part, f"{n:,}", f"{n / parameters['total']:.1%}") for part, n in parameters.items() if n),
        f"{'FLOPs per token':<32}{'forward':>18}  {'training':>18}",
        *(_line(part, f"{forward[part]:,}", f"{training[part]:,}") for part in forward if forward[part]),
        "memory in MB",
        *(_line(kind, f"{n_bytes / 1e6:,.1f}") for kind, n_bytes in memory.items()),
        *([_line("KV cache, per 1,000 tokens", f"{cache / 1e3:,.1f}")] if cache else []),
        _line("state of a full context", f"{state / 1e6:,.3f}"),
        f"predicted time on this machine ({machine.where}), whose speed was measured just now",
        _line("large matrix products", f"{machine.flops_per_second / 1e9:,.0f} GFLOP/s"),
        _line("reading and writing memory", f"{machine.bytes_per_second / 1e9:,.1f} GB/s"),
        _line("starting an operation", f"{machine.seconds_per_operation * 1e6:,.1f} us"),
        _line("one step", duration(predicted["seconds_per_step"])),
        _line(f"all {cost.steps:,} steps", duration(predicted["training_seconds"])),
        _line("tokens per second", f"{predicted['tokens_per_second']:,.0f}"),
        _line("model FLOPs utilization (MFU)", f"{predicted['model_flops_utilization']:.0%} of the peak"),
    ]
    return "\n".join(lines)


def _line(name: str, first: str, second: str = "") -> str:
    return f"    {name.replace('_', ' '):<28}{first:>18}  {second:>18}".rstrip()

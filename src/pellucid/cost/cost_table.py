"""What `pellucid cost` prints: what a run costs, and how long it should take on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pellucid.cost.build import RunCost
from pellucid.cost.machine import Machine
from pellucid.cost.step_time import duration, model_flops_utilization, step_seconds


@dataclass(frozen=True)
class CostReport:
    """The cost of a run, and the machine on which it would train."""

    cost: RunCost
    machine: Machine

    @property
    def seconds_per_step(self) -> float:
        return step_seconds(self.cost.step_work, self.machine)

    @property
    def utilization(self) -> float:
        """The predicted MFU."""
        return model_flops_utilization(
            self.cost.training_flops_per_step, self.seconds_per_step, self.machine.flops_per_second
        )

    def to_json(self) -> dict[str, Any]:
        """All figures, in the units of their names."""
        return {
            **asdict(self.cost.model),
            "memory_bytes": asdict(self.cost.memory_bytes),
            "step": {"tokens": self.cost.tokens_per_step, **asdict(self.cost.step_work)},
            "predicted": {
                "seconds_per_step": self.seconds_per_step,
                "tokens_per_second": self.cost.tokens_per_step / self.seconds_per_step,
                "training_seconds": self.cost.steps * self.seconds_per_step,
                "model_flops_utilization": self.utilization,
            },
            "machine": asdict(self.machine),
        }

    def table(self) -> str:
        """The figures that matter, on one screen."""
        return "\n".join([*self._parameters(), *self._flops(), *self._memory(), *self._time()])

    def _parameters(self) -> list[str]:
        parts = asdict(self.cost.model.parameters)
        return ["parameters", *(_line(part, f"{n:,}", f"{n / parts['total']:.1%}") for part, n in parts.items())]

    def _flops(self) -> list[str]:
        forward = asdict(self.cost.model.forward_flops_per_token)
        training = asdict(self.cost.model.training_flops_per_token)
        return [
            _line("FLOPs per token", "forward", "training", indent=0),
            *(_line(part, f"{forward[part]:,}", f"{training[part]:,}") for part in forward),
        ]

    def _memory(self) -> list[str]:
        memory = self.cost.memory_bytes
        kinds = ("weights", "gradients", "optimizer", "activations", "training", "checkpoint")
        return [
            "memory in MB",
            *(_line(kind, f"{getattr(memory, kind) / 1e6:,.1f}") for kind in kinds),
            _line("KV cache, per 1,000 tokens", f"{memory.kv_cache_per_token / 1e3:,.1f}"),
        ]

    def _time(self) -> list[str]:
        seconds, machine = self.seconds_per_step, self.machine
        return [
            f"predicted time on this machine ({machine.where}), whose speed was measured just now",
            _line("large matrix products", f"{machine.flops_per_second / 1e9:,.0f} GFLOP/s"),
            _line("reading and writing memory", f"{machine.bytes_per_second / 1e9:,.1f} GB/s"),
            _line("starting an operation", f"{machine.seconds_per_operation * 1e6:,.1f} us"),
            _line("one step", duration(seconds)),
            _line(f"all {self.cost.steps:,} steps", duration(self.cost.steps * seconds)),
            _line("tokens per second", f"{self.cost.tokens_per_step / seconds:,.0f}"),
            _line("model FLOPs utilization (MFU)", f"{self.utilization:.0%} of the peak"),
        ]


def _line(name: str, first: str, second: str = "", indent: int = 4) -> str:
    return f"{' ' * indent + name.replace('_', ' '):<32}{first:>18}  {second:>18}".rstrip()

"""Predicts the time of an update: a roofline of three lines, from the counted work and the measured machine.

    seconds = FLOPs / peak  +  bytes moved / bandwidth  +  operations * seconds to start one

The three are added, as if nothing overlapped. It ignores that products of narrow matrices run below the peak, that
caches make some passes faster, that a softmax is slower than a sum, the time between updates (evaluation, samples,
checkpoints), and the gain of torch.compile. `scripts/measure.py step_time` shows its accuracy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.cost.machine import Machine
    from pellucid.cost.meter import Work


def step_seconds(work: Work, machine: Machine) -> float:
    """The predicted time of one update."""
    return (
        work.flops / machine.flops_per_second
        + work.bytes_moved / machine.bytes_per_second
        + work.operations * machine.seconds_per_operation
    )


def duration(seconds: float) -> str:
    """A duration in a readable unit."""
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def model_flops_utilization(flops: float, seconds: float, machine_flops_per_second: float) -> float:
    """MFU: the share of the peak that a model's own FLOPs used (Chowdhery et al. 2022, appendix B).

    Recomputed activations and the optimizer do not count.
    """
    return flops / seconds / machine_flops_per_second

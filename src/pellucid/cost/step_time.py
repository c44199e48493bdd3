"""How long an update takes: a roofline of three lines, from what is counted and what is measured of the machine.

    seconds = FLOPs / peak  +  bytes moved / bandwidth  +  operations * seconds to begin one

The three are added, as if nothing overlapped. Left out: that products of narrow matrices run below the peak, that
caches make some passes faster and a softmax is slower than a sum, the time between updates (evaluation, samples,
checkpoints), and what torch.compile gains. Expect 0.7 to 0.9 of the truth (scripts/check_step_time.py), with two
exceptions: models of width 32 take twice as long, and the fused attention kernel in bfloat16 on a CPU has a backward
pass so slow that steps take up to three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.cost.activations import FLOAT32, MicroBatch, kept_bytes
from pellucid.cost.counts import Shape, count_flops, count_parameters, product
from pellucid.cost.machine import Machine
from pellucid.cost.memory import OptimizerType

# Of each number that is kept, an update makes about ten passes over as many bytes: it is written and read forward,
# and so is what stands between two kept ones (4); backward it is read, and the gradients of both are written and read
# (5); sums of gradients and casts make one more. What PyTorch dispatches is 7 (float32) to 13 (bfloat16, RMSNorm).
PASSES = 10
PASSES_TO_RECOMPUTE = 2  # of what blocks keep: a second forward pass, which writes and reads
# Operations as PyTorch dispatches them, views and the casts of autocast among them, forward and backward.
OPERATIONS_PER_BLOCK, OPERATIONS_OUTSIDE = 130, 120
OPTIMIZER_OPERATIONS_PER_BLOCK = 60
# Over the weights, to clip the gradient and to update: the gradient's norm and scaling are 3; AdamW reads 4 and writes
# 3, SGD 3 and 2. Muon goes over a matrix for its momentum and norm, four times in each of five steps, and to update.
OPTIMIZER_PASSES: dict[OptimizerType, int] = {"adamw": 10, "sgd": 8, "muon": 30}
NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True)
class StepWork:
    """What one update does, all its micro-batches together."""

    flops: int
    bytes_moved: int
    operations: int


def count_step_work(batch: MicroBatch, optimizer: OptimizerType, n_micro_batches: int) -> StepWork:
    """The work of an update that sums the gradients of so many micro-batches."""
    shape, n_again = batch.shape, int(batch.recomputes_blocks)
    forward = count_flops(shape, passes=1)
    flops = batch.n_tokens * (3 * forward.total + n_again * (forward.total - forward.unembedding))
    moved = (PASSES + n_again * PASSES_TO_RECOMPUTE) * kept_bytes(batch)
    operations = (3 + n_again) * OPERATIONS_PER_BLOCK * shape.n_layers // 3 + OPERATIONS_OUTSIDE
    weights = FLOAT32 * count_parameters(shape).total
    return StepWork(
        flops=n_micro_batches * flops + (orthogonalization_flops(shape) if optimizer == "muon" else 0),
        bytes_moved=n_micro_batches * moved + OPTIMIZER_PASSES[optimizer] * weights,
        operations=n_micro_batches * operations + OPTIMIZER_OPERATIONS_PER_BLOCK * shape.n_layers,
    )


def orthogonalization_flops(shape: Shape) -> int:
    """Muon's: each step takes X X^T, its square, and the product of both with X, for every matrix of a block."""
    flops = 0
    for sizes in shape.attention_matrices + shape.feed_forward_matrices:
        short, long = min(sizes), max(sizes)
        flops += 2 * product(short, long, short) + product(short, short, short)
    return shape.n_layers * NEWTON_SCHULZ_STEPS * flops


def step_seconds(work: StepWork, machine: Machine) -> float:
    """The predicted time of one update."""
    return (
        work.flops / machine.flops_per_second
        + work.bytes_moved / machine.bytes_per_second
        + work.operations * machine.seconds_per_operation
    )


def duration(seconds: float) -> str:
    """In the unit that a person would choose."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def model_flops_utilization(flops: float, seconds: float, machine_flops_per_second: float) -> float:
    """MFU: the share of the peak that a model's own FLOPs made use of (Chowdhery et al. 2022, appendix B).

    What is computed twice, or by the optimizer, does not count as use.
    """
    return flops / seconds / machine_flops_per_second

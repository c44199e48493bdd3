"""Measures this machine's speed in under a second: matrix products, passes over memory, starting an operation.

docs/speed.md says why these three.
"""

from collections.abc import Callable
from dataclasses import dataclass
from timeit import Timer

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.cost.meter import Meter, Work
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.kernels.products import FasterProducts

PRODUCT_WIDTH = {"cpu": 2048, "cuda": 8192}  # so wide that only the arithmetic counts
ELEMENTWISE_ROWS = {"cpu": 2**13, "cuda": 2**17}  # of 512 numbers: an activation of a model that suits the machine
CHAIN_LENGTH = 30


@dataclass(frozen=True)
class Machine:
    """The speed of a device in one number format, as `where` says; on a CPU with PyTorch's current threads.

    `flops_per_second` is the peak that a program can reach: that of large matrix products.
    """

    where: str
    flops_per_second: float
    bytes_per_second: float
    seconds_per_operation: float


def measure_machine(device: torch.device, dtype: torch.dtype) -> Machine:
    """Measure a device; once is enough to predict a hundred runs.

    Freed memory is kept, as in training. The random generators are left as they were.
    """
    keep_freed_memory()
    threads = f", {torch.get_num_threads()} threads" if device.type == "cpu" else ""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        return Machine(
            f"{device}, {str(dtype).removeprefix('torch.')}{threads}",
            measure_flops_per_second(device, dtype),
            measure_bytes_per_second(device, dtype),
            measure_seconds_per_operation(device, dtype),
        )


def measure_flops_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of large matrix products, or of smaller ones if large ones take seconds (bfloat16 without AVX-512)."""
    width = PRODUCT_WIDTH.get(device.type, 2048)
    large, small = (torch.randn(n, n, device=device).to(dtype) for n in (width, width // 4))
    with FasterProducts():
        seconds = fastest(lambda: F.linear(small, small), 0.02)
        if 4**3 * seconds > 5:
            return 2 * (width // 4) ** 3 / seconds
        return 2 * width**3 / fastest(lambda: F.linear(large, large), 0.2)


def measure_bytes_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """Bytes read and written per second by elementwise operations: a norm, an activation, a sum, their gradients."""
    x = torch.randn(ELEMENTWISE_ROWS.get(device.type, 2**13), 512, device=device).to(dtype).requires_grad_()

    def elementwise() -> Tensor:
        y = F.gelu(F.layer_norm(x, x.shape[-1:])) + x
        return torch.autograd.grad(y, x, x.detach())[0]

    return _work_of(elementwise).bytes_moved / fastest(elementwise, 0.2)


def measure_seconds_per_operation(device: torch.device, dtype: torch.dtype) -> float:
    """Seconds to start one of a model's operations, measured on a chain of tiny sublayers."""
    sublayer = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()).to(device)
    x = torch.ones(16, 16, device=device, dtype=dtype, requires_grad=True)

    def chain() -> Tensor:
        y = x
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            for _ in range(CHAIN_LENGTH):
                y = y + sublayer(y)
        return torch.autograd.grad(y.sum(), (x, *sublayer.parameters()))[0]

    return fastest(chain, 0.05) / _work_of(chain).operations


def _work_of(work: Callable[[], Tensor]) -> Work:
    meter = Meter()
    with meter:
        work()
    return meter.work


def fastest(work: Callable[[], Tensor], seconds: float) -> float:
    """Seconds of the fastest run, of at least two and about as many as fit into `seconds`, after a warm-up.

    The fastest is the most accurate: whatever else the machine does can only make a run slower.
    """
    timer = Timer(lambda: work().flatten()[0].item())  # which waits for a GPU
    timer.timeit(1)
    times = [timer.timeit(1)]
    while sum(times) < seconds:
        times.append(timer.timeit(1))
    return min(times)

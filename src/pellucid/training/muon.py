"""Muon: momentum, made orthogonal (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

The gradient of a matrix is much longer in some directions than in others, and so is a step along it. Muon steps
along the nearest orthogonal matrix instead: equally far in every direction that the gradient has at all.

Shapes: N matrices of R rows and C columns each, R <= C.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pellucid.runtime.distributed import ALONE, World, cut_like, whole

# x -> a x + b x^3 + c x^5, again and again, brings every singular value in (0, 1] near 1. These coefficients give up
# exactness (they end between about 0.7 and 1.2) for speed: small values grow by 3.4 a step.
A, B, C = 3.4445, -4.7750, 2.0315
NEWTON_SCHULZ_STEPS = 5


class Muon(Optimizer):
    """The steps of torch.optim.Muon, to rounding. That one takes matrix after matrix; here all of a shape go together,
    which makes the step of a small model three times as fast.

    `dtype` is the format of the products: bfloat16 is precise enough, where the hardware computes in it. Where several
    processes train, each makes its share of the matrices orthogonal.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        dtype: torch.dtype,
        world: World = ALONE,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype, self.world = dtype, world

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients that the parameters hold; `closure` is not used."""
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            directions = [whole(self._nesterov(matrix, group["momentum"])) for matrix in matrices]
            for matrix, direction in zip(matrices, orthogonalize(directions, self.dtype, self.world), strict=True):
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(cut_like(direction, matrix), alpha=-group["lr"] * sqrt(max(1.0, rows / columns)))

    def _nesterov(self, matrix: nn.Parameter, momentum: float) -> Tensor:
        """The running mean of the gradient, one step ahead (Nesterov's momentum)."""
        assert matrix.grad is not None
        state: dict[str, Any] = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        mean: Tensor = state["momentum_buffer"]
        mean.lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(mean, momentum)


def orthogonalize(matrices: list[Tensor], dtype: torch.dtype, world: World = ALONE) -> list[Tensor]:
    """U V^T, nearly, for each matrix U S V^T. All of a shape, or of its transpose, go together."""
    places: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, matrix in enumerate(matrices):
        places[tuple(sorted(matrix.shape))].append(i)
    wide = [matrix.T if matrix.size(0) > matrix.size(1) else matrix for matrix in matrices]
    stacks_NRC = [torch.stack([wide[i] for i in of_shape]) for of_shape in places.values()]
    done_NRC = world.share_out(partial(newton_schulz, dtype=dtype), stacks_NRC)
    result = dict(zip(chain(*places.values()), chain(*done_NRC), strict=True))
    return [result[i].T if matrix.size(0) > matrix.size(1) else result[i] for i, matrix in enumerate(matrices)]


def newton_schulz(x_NRC: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest orthogonal matrices, nearly, by products alone: no SVD."""
    x_NRC = (x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)).to(dtype)
    _, n_rows, n_columns = x_NRC.shape
    # One by one, the steps take (5 R + 10 C) R^2 multiplications; three and two together, (14 R + 4 C) R^2. All five
    # would be fewer yet, but each makes the rounding errors of G up to A^2 = 12 times as large: bfloat16 bears three.
    together = [3, 2] if 2 * n_columns > 3 * n_rows else [1] * NEWTON_SCHULZ_STEPS
    for n_steps in together:
        x_NRC = steps_together(x_NRC, n_steps)
    return x_NRC


def steps_together(x_NRC: Tensor, n_steps: int) -> Tensor:
    """P_n ... P_2 P_1 X, with P = a + b G + c G^2 of the Gram matrix G = X X^T, which each step turns into P G P.

    G is small where X is wide, and X takes part only at the start and at the end.
    """
    gram_NRR = x_NRC @ x_NRC.mT
    all_steps_NRR = step_NRR = polynomial(gram_NRR)
    for _ in range(n_steps - 1):
        gram_NRR = step_NRR @ gram_NRR @ step_NRR
        step_NRR = polynomial(gram_NRR)
        all_steps_NRR = step_NRR @ all_steps_NRR
    return all_steps_NRR @ x_NRC


def polynomial(gram_NRR: Tensor) -> Tensor:
    """Returns a + b G + c G^2, by which one step multiplies X."""
    result_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=B, alpha=C)
    result_NRR.diagonal(dim1=1, dim2=2).add_(A)
    return result_NRR

"""The learning rate as a pure function of the step: a factor from 0 to 1 on the optimizer's `lr`.

A pure function has no state to save, so a resumed run cannot get it wrong.
"""

import math
from collections.abc import Callable
from functools import partial

from typing_extensions import assert_never

from pellucid.config.training import ConstantConfig, CosineConfig, ScheduleConfig, WarmupStableDecayConfig

Schedule = Callable[[int], float]


def build_schedule(config: ScheduleConfig, steps: int) -> Schedule:
    """The factor on the learning rate as a function of the step."""
    options = config.model_dump(exclude={"type"})
    match config:
        case ConstantConfig():
            return partial(constant, **options)
        case CosineConfig():
            return partial(cosine, steps=steps, **options)
        case WarmupStableDecayConfig():
            return partial(warmup_stable_decay, steps=steps, **options)
        case _:
            assert_never(config)


def step_before_decay(config: ScheduleConfig, steps: int) -> int | None:
    """The step from which a longer run could continue, if the learning rate falls only at the end."""
    if not isinstance(config, WarmupStableDecayConfig):
        return None
    return decay_begins(steps, config.decay_fraction) or None


def warmup(step: int, warmup_steps: int) -> float:
    """A linear rise that reaches 1 after the warmup steps; the very first update is already above zero."""
    return min(1.0, (step + 1) / (warmup_steps + 1))


def constant(step: int, *, warmup_steps: int) -> float:
    """Warmup, then 1."""
    return warmup(step, warmup_steps)


def cosine(step: int, *, steps: int, warmup_steps: int, final_lr_fraction: float) -> float:
    """Warmup, then half a cosine from 1 to `final_lr_fraction` at the last step (Loshchilov and Hutter 2017)."""
    progress = max(0, step - warmup_steps) / max(1, steps - 1 - warmup_steps)
    height = (1 + math.cos(math.pi * min(1.0, progress))) / 2
    return warmup(step, warmup_steps) * (final_lr_fraction + (1 - final_lr_fraction) * height)


def warmup_stable_decay(
    step: int, *, steps: int, warmup_steps: int, decay_fraction: float, final_lr_fraction: float
) -> float:
    """Warmup, then 1, then a straight line down to `final_lr_fraction` (Hu et al. 2024).

    The line takes the last `decay_fraction` of all steps.
    """
    decay_steps = steps - decay_begins(steps, decay_fraction)
    remaining = min(1.0, (steps - 1 - step) / decay_steps)
    return warmup(step, warmup_steps) * (final_lr_fraction + (1 - final_lr_fraction) * max(0.0, remaining))


def decay_begins(steps: int, decay_fraction: float) -> int:
    """The number of updates of `warmup_stable_decay` before it decays. A longer run can continue from there."""
    return steps - max(1, round(decay_fraction * steps))


def common_steps(a: Schedule, b: Schedule, steps: int) -> int:
    """The number of updates, at most `steps`, before two schedules differ."""
    return next((step for step in range(steps) if a(step) != b(step)), steps)

"""Chooses the number of training processes."""

import os
import sys

import torch

from pellucid.config.run import RunConfig
from pellucid.errors import ConfigError
from pellucid.runtime.distributed import ALONE, World, divides
from pellucid.runtime.precision import resolve_precision

PROCESSES_PER_CORE = 8  # at most
LEAST_POSITIONS = 1_000_000  # below, starting processes takes longer than they save


def choose_n_processes(config: RunConfig, world: World = ALONE) -> int:
    """The number of processes to train with: torchrun's; else one per GPU; or one per CPU core, for a long enough run.

    On Windows one, unless the config asks for more: several have not been tried there yet, and there is no NCCL.

    Four processes are as fast as four threads, and lose far less speed beside other programs (docs/speed.md): they
    wait for each other a few times an update, threads at every operation. Raises ConfigError if parallel is none
    and torchrun started several, or if there are fewer GPUs, or far fewer cores, than processes.
    """
    train = config.train
    if train.parallel == "none" and world.size > 1:
        what = f"none is for one process, and torchrun started {world.size}"
        raise ConfigError("train.parallel", what, "set it to auto, or start the command without torchrun")
    if world.size > 1 or train.parallel == "none":
        return world.size
    device = resolve_precision(train.device, train.precision).device
    n_gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    if train.processes != "auto":
        if device.type == "cuda" and train.processes > n_gpus:
            what = f"{train.processes} processes need a GPU each, and this machine has {n_gpus}"
            raise ConfigError("train.processes", what, "set it to auto, or train.device to cpu")
        n_cores = os.cpu_count() or 1
        if device.type == "cpu" and train.processes > PROCESSES_PER_CORE * n_cores:
            what = f"{train.processes} processes are too many for {n_cores} cores: each is a full Python process"
            raise ConfigError("train.processes", what, "set it to auto, or to the number of cores")
        return train.processes
    is_long = train.steps * config.tokens_per_step >= LEAST_POSITIONS
    most = {"cuda": n_gpus, "cpu": torch.get_num_threads() if is_long else 1}.get(device.type, 1)
    if sys.platform == "win32":
        most = 1
    return max(n for n in range(1, most + 1) if divides(train.gradient_accumulation_steps, train.batch_size, n))

"""Refuses a run that needs many times the memory that there is, before anything is prepared."""

import logging
import os
from pathlib import Path

import torch

from pellucid.config.model import MLPConfig
from pellucid.config.run import RunConfig
from pellucid.errors import LESS_MEMORY, OutOfMemoryError
from pellucid.runtime.precision import Precision, precision_here
from pellucid.training.cost_of_run import cost_of_run

_log = logging.getLogger(__name__)

BY_FAR = 8  # with swap, shared layers or a compiled graph, the count may be several times the real use
LEAST_VOCABULARY = 256  # a corpus may hold fewer tokens than the config has room for
LEAST_ROW = 32  # and its documents may be shorter than the context
WORTH_COUNTING = 1 / 64  # of the memory, in one number per coordinate: counting takes a second

LIMITS_OF_CONTAINER = [Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory/memory.limit_in_bytes")]


def require_memory(config: RunConfig, n_processes: int = 1) -> None:
    """Raise OutOfMemoryError if one micro-batch needs, at the very least, many times the memory of the device.

    Warn if it needs more once all its rows are full: the system may then kill the run without a message.
    Counted for one process; several may share the rows.
    """
    precision = precision_here(config.train.device, config.train.precision)
    available = device_bytes(precision)
    if available is None or (n_processes > 1 and precision.device.type != "cpu"):
        return
    model = config.model
    width, n_layers = getattr(model, "d_model", 1), getattr(model, "n_layers", 1)
    n_coordinates = n_layers * width * (width + config.rows_per_micro_batch * model.context_length)
    if 4 * n_coordinates < WORTH_COUNTING * available:
        return
    needed = cost_of_run(config, LEAST_VOCABULARY, precision).memory_bytes.training
    if needed <= available:
        return
    rows, room = f"a micro-batch of {config.rows_per_micro_batch:,} rows", f"this device has {available / 1e9:,.0f}"
    if (least := least_bytes(config, precision)) > BY_FAR * available:
        raise OutOfMemoryError("memory", f"{rows} needs about {least / 1e9:,.0f} GB, but {room}", LESS_MEMORY)
    what = f"{rows} needs about {needed / 1e9:,.0f} GB, but {room}"
    _log.warning("memory: %s; if it does not fit, %s", what, LESS_MEMORY)


def least_bytes(config: RunConfig, precision: Precision) -> int:
    """The memory of a micro-batch whose rows and vocabulary are as small as the data may make them."""
    model = config.model
    if config.data.packing == "documents" or not config.reads_text:
        least = max(LEAST_ROW, model.window if isinstance(model, MLPConfig) else 0)
        model = model.model_copy(update={"context_length": min(model.context_length, least)})
    return cost_of_run(config.model_copy(update={"model": model}), LEAST_VOCABULARY, precision).memory_bytes.training


def device_bytes(precision: Precision) -> int | None:
    """The memory of the device, or of the container if that is less; None where the system does not report it."""
    if precision.device.type == "cuda":
        return int(torch.cuda.get_device_properties(precision.device).total_memory)
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
    limits = [file.read_text().strip() for file in LIMITS_OF_CONTAINER if file.exists()]
    return min([physical, *(int(limit) for limit in limits if limit.isdecimal())])

"""Commands that read configs and build nothing: cost, configs, schema."""

from __future__ import annotations

import logging
import shutil
import textwrap
from typing import Annotated, Literal

from typer import Argument, Option

from pellucid.cli.arguments import ConfigFile, Json, Overrides, load_config
from pellucid.cli.terminal import heavy_imports, print_result
from pellucid.errors import ConfigError

_log = logging.getLogger(__name__)


def cost(
    config: ConfigFile,
    overrides: Overrides = None,
    devices: Annotated[int | None, Option(metavar="N", min=1, help="Estimate training on N GPUs instead.")] = None,
    per_node: Annotated[
        int | None, Option(metavar="N", min=1, help="With --devices: GPUs per node. [default: 8]")
    ] = None,
    tflops: Annotated[
        float | None, Option(metavar="X", min=1e-3, help="With --devices: peak of one GPU, in TFLOP/s. [default: 989]")
    ] = None,
    bandwidth: Annotated[
        float | None,
        Option(metavar="X", min=1e-3, help="With --devices: GB/s from a GPU to other nodes. [default: 40]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Count parameters, FLOPs and memory before anything is built. Also predicts how long training takes."""
    for option, value in {"--per-node": per_node, "--tflops": tflops, "--bandwidth": bandwidth}.items():
        if value is not None and devices is None:
            fix = "add --devices 1 for one such GPU, or leave it out for this machine"
            raise ConfigError("command line", f"{option} works only with --devices", fix)
    run_config = load_config(config, overrides)
    with heavy_imports():
        from pellucid.cost.cost_table import cost_report, cost_table
        from pellucid.cost.devices_table import devices_report, devices_table, gpu, gpus
        from pellucid.cost.machine import measure_machine
        from pellucid.data.build import vocab_size_of
        from pellucid.runtime.precision import precision_here, resolve_precision
        from pellucid.training.cost_of_run import cost_of_run, update_on_one_device

    vocab_size = vocab_size_of(run_config)
    if devices is not None:
        precision = resolve_precision("cpu", "fp32" if run_config.train.precision == "fp32" else "bf16")
        machine, cluster = gpu(tflops or 989.0, precision.dtype), gpus(devices, per_node or 8, bandwidth or 40.0)
        update = update_on_one_device(run_config, vocab_size, precision, machine)
        print_result((devices_report if as_json else devices_table)(update, cluster, machine))
        return
    if not run_config.reads_text:
        _log.warning("this is learning alone: writing the answers, and what a reference says of them, come on top")
    precision = precision_here(run_config.train.device, run_config.train.precision)
    counted = cost_of_run(run_config, vocab_size, precision)
    machine = measure_machine(precision.device, precision.dtype)
    print_result(cost_report(counted, machine) if as_json else cost_table(counted, machine))


def configs() -> None:
    """List the configs that come with Pellucid. Their names are enough: `pellucid train debug`."""
    from pellucid.config.shipped import shipped_configs

    columns = shutil.get_terminal_size().columns
    for name, purpose in shipped_configs():
        print(textwrap.fill(f"{name:29} {purpose}", columns, subsequent_indent=" " * 30))


def schema(
    of: Annotated[Literal["run", "experiment"], Argument(metavar="[run|experiment]", help="Kind of config.")] = "run",
) -> None:
    """Print the JSON Schema of a config, for editors."""
    from pellucid.config.experiment import ExperimentConfig
    from pellucid.config.run import RunConfig

    print_result((RunConfig if of == "run" else ExperimentConfig).model_json_schema())

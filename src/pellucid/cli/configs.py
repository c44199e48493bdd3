"""Commands that only read configs: cost, configs, schema."""

import logging
from typing import Annotated, Literal

from typer import Argument

from pellucid.cli.arguments import ConfigFile, Json, Overrides, load_config
from pellucid.cli.terminal import heavy_imports, print_result

_log = logging.getLogger(__name__)


def cost(config: ConfigFile, overrides: Overrides = None, as_json: Json = False) -> None:
    """Count parameters, FLOPs and memory before anything is built. Also predicts how long training takes."""
    run_config = load_config(config, overrides)
    with heavy_imports():
        from pellucid.cost.cost_table import cost_report, cost_table
        from pellucid.cost.machine import measure_machine
        from pellucid.runs.cost_of_run import cost_of_run, vocab_size_of
        from pellucid.runtime.precision import precision_here

    vocab_size = vocab_size_of(run_config)
    if not run_config.reads_text:
        _log.warning("this is learning alone: writing the answers, and what a reference says of them, come on top")
    precision = precision_here(run_config.train.device, run_config.train.precision)
    counted = cost_of_run(run_config, vocab_size, precision)
    machine = measure_machine(precision.device, precision.dtype)
    print_result(cost_report(counted, machine) if as_json else cost_table(counted, machine))


def configs() -> None:
    """List the configs that come with Pellucid. Their names are enough: `pellucid train debug`."""
    from pellucid.config.shipped import shipped_configs
    from pellucid.tables import table

    print_result(table((), shipped_configs()))


def schema(
    of: Annotated[
        Literal["run", "experiment", "tour"], Argument(metavar="[run|experiment|tour]", help="Kind of config.")
    ] = "run",
) -> None:
    """Print the JSON Schema of a config, for editors."""
    from pellucid.config.base import Section
    from pellucid.config.experiment import ExperimentConfig
    from pellucid.config.run import RunConfig
    from pellucid.config.tour import TourConfig

    kinds: dict[str, type[Section]] = {"run": RunConfig, "experiment": ExperimentConfig, "tour": TourConfig}
    print_result(kinds[of].model_json_schema())

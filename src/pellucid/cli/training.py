"""Commands that train: prepare, train, experiment."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pellucid.cli.arguments import DATA_ROOT, ConfigFile, Overrides, load_config
from pellucid.cli.terminal import heavy_imports, is_first, note, say_where_new, typed
from pellucid.errors import ConfigError
from pellucid.files import RUNS_ROOT


def prepare(config: ConfigFile, overrides: Overrides = None) -> None:
    """Turn a corpus into token files, once. Learns the tokenizer from it; prints the folder."""
    run_config = load_config(config, overrides)
    with heavy_imports():
        from pellucid.data.prepared import prepared

    say_where_new(DATA_ROOT)
    print(prepared(run_config.corpus, run_config.tokenizer, DATA_ROOT).directory)


def train(
    config: ConfigFile,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, Option(metavar="DIR", help="Run folder. [default: checkpoints/NAME]")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the newest checkpoint, if any.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Delete an earlier run in that folder.")] = False,
    minutes: Annotated[float | None, Option(metavar="M", min=0.01, help="As many steps as fit into M minutes.")] = None,
) -> None:
    """Train a model. Prints the validation loss at the end, and the floor where it is known."""
    if resume and overwrite:
        raise ConfigError("command line", "--resume and --overwrite exclude each other", "give one of them")
    run_config = load_config(config, overrides)
    with heavy_imports():
        from pellucid.runs.train_run import train_run

    directory = run_dir or RUNS_ROOT / run_config.name
    say_where_new(DATA_ROOT, directory.parent)
    outcome = train_run(
        run_config, DATA_ROOT, directory, resume=resume, overwrite=overwrite, minutes=minutes, note=note
    )
    if not is_first():
        sys.exit(0 if outcome.stopped_by is None else 128 + outcome.stopped_by)
    if outcome.stopped_by is not None:
        note(f"stopped after step {outcome.step}, saved; to continue: {typed()} --resume")
        sys.exit(128 + outcome.stopped_by)
    if outcome.best is None:
        print(f"validation: {outcome.evaluation}")
    else:
        print(f"validation: {outcome.best}   step {outcome.best_step:,}, the best: `generate` takes it")
        print(f"validation: {outcome.evaluation}   step {outcome.step:,}, the last")


def experiment(
    file: Annotated[Path, Argument(metavar="EXPERIMENT", help="YAML file, or experiments/NAME.")],
    overrides: Overrides = None,
    jobs: Annotated[int, Option(metavar="N", min=1, help="Runs at a time; they share the cores.")] = 1,
    report: Annotated[Path | None, Option(metavar="DIR", help="[default: checkpoints/experiments/NAME]")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the runs and how long they will take.")] = False,
) -> None:
    """Train many runs that differ in one or two things. Writes results.csv, figures and report.md."""
    from pellucid.experiments.plan import plan_experiment

    plan = plan_experiment(file, overrides or [])
    folder = RUNS_ROOT / "experiments" / plan.config.name
    if dry_run:
        from pellucid.experiments.forecast import forecast_table

        print(forecast_table(plan, folder, jobs))
        return
    with heavy_imports():
        from pellucid.experiments.run_experiment import run_experiment

    report_dir = report or folder
    say_where_new(DATA_ROOT, RUNS_ROOT)
    stopped_by = run_experiment(plan, data_root=DATA_ROOT, folder=folder, report_dir=report_dir, jobs=jobs, note=note)
    if stopped_by is not None:
        note(f"stopped, saved; to continue: {typed()}")
        sys.exit(128 + stopped_by)
    print(report_dir / "report.md")


def experiment_run(run_dir: Path, data_root: Path) -> None:
    """Train one run of an experiment, in the process that `experiment` starts for it."""
    with heavy_imports():
        from pellucid.experiments.worker import work

    stopped_by = work(run_dir, data_root)
    if stopped_by is not None:
        sys.exit(128 + stopped_by)

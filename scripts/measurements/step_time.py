"""How well `pellucid cost` predicts the time of an update: predicted beside measured, over very different models.

Remakes: step_time
Takes: 2 minutes
Needs: nothing

The machine is measured anew before each model, so that others who use it slow both sides alike; the ratio is the median
of several such turns.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from results import Entry
from runs import FABLES
from timing import median_ratio

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.cost.machine import measure_machine
from pellucid.cost.step_time import step_seconds
from pellucid.data.prepared import PreparedData
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.recipe import build_trainer, prepare_data
from pellucid.runs.cost_of_run import cost_of_run
from pellucid.runtime.precision import resolve_precision
from pellucid.training.trainer import Trainer

UPDATES_A_TURN = 5
FEW_FABLES = ["corpus={type: fables, size: 3000}"]
NARROW = "narrow: d 32"
VARIANTS = {
    "the demo": [],
    "in float32": ["train.precision=fp32"],
    NARROW: ["model.d_model=32"],
    "wide: d 384": ["model.d_model=384", "train.batch_size=8"],
    "deep: 12 layers": ["model.n_layers=12", "train.batch_size=8"],
    "long: context 512": ["model.context_length=512", "train.batch_size=8"],
    "SwiGLU, RMSNorm, AdamW": ["model.activation=swiglu", "model.norm=rms_norm", "optimizer={type: adamw, lr: 0.001}"],
    "4 micro-batches": ["train.batch_size=6", "train.gradient_accumulation_steps=4"],
    "gradient checkpointing": ["train.gradient_checkpointing=block"],
}


def measure(*, turns: int = 5) -> Iterator[Entry]:
    keep_freed_memory()
    figures = {}
    for name, overrides in VARIANTS.items():
        config = load_run_config(FABLES, [*FEW_FABLES, *overrides])
        data = prepare_data(config, Path("data"))
        trainer, _ = build_trainer(config, data)
        trainer.update()  # the first one warms up
        figures[name] = as_row([one_turn(config, data, trainer) for _ in range(turns)])
    ratios = sorted(row["ratio"] for name, row in figures.items() if name != NARROW)
    range_of_ratios = {"lowest other ratio": ratios[0], "highest ratio": ratios[-1]}
    yield Entry("step_time", {**figures, **range_of_ratios}, ["fables/shape"])


def as_row(turns: list[tuple[float, float]]) -> dict[str, float]:
    predicted, measured = zip(*turns, strict=True)
    ratio = median_ratio(predicted, measured)
    return {"predicted (ms)": 1000 * median(predicted), "measured (ms)": 1000 * median(measured), "ratio": ratio}


def one_turn(config: RunConfig, data: PreparedData, trainer: Trainer) -> tuple[float, float]:
    """Seconds of an update: as predicted from the machine as it is now, and the median of several."""
    precision = resolve_precision(config.train.device, config.train.precision)
    machine = measure_machine(precision.device, precision.dtype)
    cost = cost_of_run(config, data.tokenizer.vocab_size, precision)
    measured = median(trainer.update().seconds for _ in range(UPDATES_A_TURN))
    return step_seconds(cost.step_work, machine), measured

"""How fast GPT-2 small trains here, on random tokens: compiled and not, and nanoGPT's model where it is given.

Remakes: gpt2
Takes: 2 minutes on a GPU
Needs: a GPU; a folder with nanoGPT's model.py is compared if --nanogpt names it

An update is a micro-batch of configs/gpt2_124m.yaml, forward, backward, clipping and AdamW; a figure is the median of
30. MFU is the share of what large matrix products reach. Each row has a process to itself, and is recorded at once.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from measurements.rivals import Shape, nanogpt_updates
from results import ROOT, Entry, here
from runs import in_a_process
from timing import seconds_of

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.cost.build import cost_of
from pellucid.cost.machine import measure_flops_per_second
from pellucid.model.build import build_model
from pellucid.objectives.next_token import choose_objective
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.training.optimizers import build_optimizers
from pellucid.training.trainer import Trainer

CONFIG = ROOT / "configs" / "gpt2_124m.yaml"
WARM_UP_UPDATES, UPDATES = 5, 30
VOCAB_SIZE = 50257


def measure(*overrides: str, nanogpt: Path | None = None) -> Iterator[Entry]:
    """overrides: of the config, as key=value."""
    figures: dict[str, dict[str, float]] = {}
    for kind in ("not compiled", "compiled", *(["nanoGPT"] if nanogpt else [])):
        figures[kind] = in_a_process(figures_of, kind, nanogpt, list(overrides))
        yield Entry(here("gpt2"), figures, ["gpt2_124m"])


def shape_of(config: RunConfig) -> Shape:
    model = config.model
    sizes = {name: getattr(model, name) for name in ("context_length", "d_model", "n_layers", "n_heads")}
    return Shape(config.train.batch_size, vocab_size=VOCAB_SIZE, **sizes)


def our_update(config: RunConfig, precision: Precision, compiles: bool) -> Callable[[], object]:
    model = build_model(config.model, VOCAB_SIZE).to(precision.device)
    return Trainer(
        model,
        torch.compile(model) if compiles else model,
        build_optimizers(config.optimizer, model, precision),
        lambda step: 0.01,
        lambda i, rows: shape_of(config).batch(i).part(rows),
        precision,
        objective=choose_objective(config.model, model, compiles),
        batch_size=config.train.batch_size,
        max_gradient_norm=config.train.max_gradient_norm,
    ).update


def figures_of(kind: str, nanogpt: Path | None, overrides: list[str]) -> dict[str, float]:
    """One row. For a process of its own, as the peak is that of the process."""
    config = load_run_config(CONFIG, overrides)
    precision = resolve_precision("auto", "auto")
    torch.manual_seed(0)
    if kind == "nanoGPT":
        assert nanogpt is not None
        update = nanogpt_updates(shape_of(config), precision, nanogpt, bias=True)
    else:
        update = our_update(config, precision, compiles=kind == "compiled")
    seconds = median([seconds_of(update) for _ in range(WARM_UP_UPDATES + UPDATES)][WARM_UP_UPDATES:])
    is_gpu = precision.device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() / 1e9 if is_gpu else float("nan")
    del update
    n_tokens = config.train.batch_size * config.model.context_length
    flops = n_tokens * cost_of(config.model, VOCAB_SIZE).training_flops_per_token.total
    products = measure_flops_per_second(precision.device, precision.dtype)
    return {
        "tokens/s": n_tokens / seconds,
        "an update (ms)": 1e3 * seconds,
        "MFU (%)": 100 * flops / seconds / products,
        "matrix products (TFLOP/s)": products / 1e12,
        **({"peak (GB)": peak} if is_gpu else {}),
    }

"""How much of the beliefs about the hidden state a linear map reads from each layer."""

import pandas as pd

from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import variants_table
from pellucid.inspection.beliefs import LAST_SYMBOLS, read_beliefs

N_DOCUMENTS = 1000
LAYERS = ("embedding", "block 1", "block 2", "the last norm")
COLUMNS = (*LAYERS, *(f"untrained {layer}" for layer in LAYERS), *(f"last {n}" for n in LAST_SYMBOLS), "linear filter")


def measure(run: TrainedRun) -> dict[str, float]:
    """R² of the beliefs read from each layer, of the model and of an untrained one; and what simpler readers tell."""
    trained, language = run.trained, run.trained.corpus().language
    found = {}
    for name, model in (("", trained.model), ("untrained ", trained.untrained())):
        read = read_beliefs(model, trained.tokenizer, language, N_DOCUMENTS)
        found |= {f"{name}{layer}": read.explained(points) for layer, points in read.layers.items()}
    found |= {f"last {n}": read.explained(points) for n, points in read.last_symbols.items()}
    found["linear filter"] = read.explained(read.linear_filter)
    return {f"beliefs.{name}": explained for name, explained in found.items()}


def tables(numbers: pd.DataFrame) -> list[str]:
    columns = {name: (f"beliefs.{name}", "{:.3f}".format) for name in COLUMNS if f"beliefs.{name}" in numbers}
    return [
        "## Beliefs",
        "How much of the beliefs about the hidden state a linear map reads from each layer, in documents that it was "
        "not fitted on (R²); and what the last symbols tell, and a linear filter of all symbols so far.",
        variants_table(numbers, columns),
    ]

"""What the right side is worth, exactly and to the models, and what a linear map reads from mean vectors of texts."""

import numpy as np
import pandas as pd

from pellucid.data.both_sides import truth_from_both_sides
from pellucid.experiments.measures import TrainedRun
from pellucid.experiments.report import mean_and_range, table, variants_table
from pellucid.inspection.embed import layers_of_texts
from pellucid.inspection.probe import LinearClassifier

N_DOCUMENTS = 1000
READERS = {"the bag of symbols": 0, "the mean of the last layer": -1}
LEFT, BOTH = "exact.left", "exact.both"


def measure(run: TrainedRun) -> dict[str, float]:
    """The exact surprise of a symbol given its left side and given both, in nats; and what the mean vectors tell."""
    data, boundaries = run.data, run.data.validation.boundaries
    both = truth_from_both_sides(data, run.config.corpus, boundaries)
    assert data.truth is not None
    assert both is not None
    n_symbols = data.validation.n_targets - (len(boundaries) - 1)  # a document's end is certain, and never hidden
    exact = {name: float(truth.nats.sum()) / n_symbols for name, truth in ((LEFT, data.truth), (BOTH, both))}
    return exact | (read_first_answers(run) if run.config.corpus.type == "lookup" else {})


def read_first_answers(run: TrainedRun) -> dict[str, float]:
    """How often a linear map tells the first answer of a document that it was not fitted on, by what it reads."""
    trained = run.trained
    texts = trained.corpus().fresh(N_DOCUMENTS, seed=0)
    answers_N = np.array([int(text.split(":")[1].split()[1]) for text in texts])
    layers = [[x_TD.mean(axis=0) for x_TD in of] for of in layers_of_texts(trained.model, trained.tokenizer, texts)]
    is_new_N = np.arange(len(texts)) % 5 == 0
    found = {}
    for name, layer in READERS.items():
        x_ND = np.stack([of[layer] for of in layers])
        linear = LinearClassifier(x_ND[~is_new_N], answers_N[~is_new_N], n_classes=int(answers_N.max()) + 1)
        found[f"first answer.{name}"] = float((linear.answers(x_ND[is_new_N]) == answers_N[is_new_N]).mean())
    return found


def tables(numbers: pd.DataFrame) -> list[str]:
    return [
        "## What the right side is worth",
        "The surprise of a symbol in nats: exactly, given its left side and given both; what the right side is worth; "
        "and what the masked models save, beside the mean loss of the decoders.",
        table(("variant", "given the left", "given both", "worth", "saved"), rows_of_worth(numbers)),
        "## Vectors of texts",
        "How often a linear map tells the first answer of a new document from the mean of its vectors.",
        variants_table(
            numbers[numbers.index.str.startswith("lookup")],
            {name: (f"first answer.{name}", "{:.1%}".format) for name in READERS},
        ),
    ]


def rows_of_worth(numbers: pd.DataFrame) -> list[list[str]]:
    """A row for each masked variant, beside the decoders of its language."""
    rows = []
    for label, runs in numbers.groupby(level=0, sort=False):
        decoders = numbers[numbers.index == f"{str(label).partition(',')[0]}, decoder"]
        if "masked" in str(label) and len(decoders):
            per_symbol = decoders[LEFT] / decoders.floor  # a decoder's loss counts the ends, which are certain
            saved = (decoders.val_loss * per_symbol).mean() - runs.val_loss
            columns = (runs[LEFT], runs[BOTH], runs[LEFT] - runs[BOTH], saved)
            rows.append([str(label), *(mean_and_range(column, "{:.4f}".format) for column in columns)])
    return rows

"""Which kind of bracket closes, compared with the other kinds alone, wherever one closes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pellucid.config.experiment import OwnConfig
from pellucid.data.token_truth import TokenTruth
from pellucid.evaluation.loss import Scores, score
from pellucid.experiments.figures.means import Sketch
from pellucid.experiments.figures.skills import table_in_colours
from pellucid.experiments.measures import TrainedRun, other_texts
from pellucid.experiments.report import variants_table
from pellucid.experiments.results import RunResult

LABEL = "right kind, among the brackets that close (% of them)"


def measure(run: TrainedRun) -> dict[str, float]:
    """How often the right kind is the likeliest, by skill and text: the column `kind.close 2@deeper`."""
    found = {}
    for text in other_texts(run):
        kinds = text.corpus.language.kinds
        closing = [run.trained.tokenizer.encode(f" {symbol}")[-1] for _, symbol in kinds]
        scores = score(Among(text.model, closing), text.batches, run.precision)
        closes_N = np.isin(text.tokens.tokens[scores.places + 1], closing)
        for skill, share in right_kinds(scores, closes_N, text.truth).items():
            found[f"kind.{skill}@{text.name}"] = share
    return found


class Among(nn.Module):
    """A model that chooses among these tokens alone: all others get probability 0."""

    def __init__(self, model: nn.Module, token_ids: Sequence[int]) -> None:
        super().__init__()
        self.model, self.token_ids = model, list(token_ids)

    def forward(self, inputs_BT: Tensor) -> Tensor:
        logits_BTV = self.model(inputs_BT)
        excluded_V = torch.full_like(logits_BTV[0, 0], -torch.inf)
        excluded_V[self.token_ids] = 0
        return logits_BTV + excluded_V


def right_kinds(scores: Scores, closes_N: NDArray[np.bool_], truth: TokenTruth) -> dict[str, float]:
    """How often the right kind is the likeliest of the brackets that close, by skill; `close`: at every depth.

    All places count where one closes, also those where one might have opened. Hewitt et al. (2020) ask for more: that
    the right kind has over 80 % of the probability of all brackets that close.
    """
    shares_NS = truth.shares(scores.places[closes_N])
    n_S, n_right_S = shares_NS.sum(axis=0), scores.hits[closes_N] @ shares_NS
    by_skill = {skill: float(n_right_S[s] / n_S[s]) for s, skill in enumerate(truth.skills) if n_S[s]}
    return by_skill | {"close": float(n_right_S.sum() / n_S.sum())}


def draw(figure: OwnConfig, results: Sequence[RunResult]) -> Sketch:
    """Draw the shares in the text that the figure names, variants by skills."""
    text = figure.what
    rows = [{skill: run.measured.get(f"kind.{skill}@{text}") for skill in run.texts.get(text, {})} for run in results]
    return table_in_colours(figure.title, rows, results, LABEL, where=f', in the texts "{text}"')


def tables(numbers: pd.DataFrame) -> list[str]:
    parts = ["## Kinds of brackets"]
    for text in dict.fromkeys(column.partition("@")[2] for column in numbers if column.startswith("kind.")):
        columns = [column for column in numbers if column.startswith("kind.") and column.endswith(f"@{text}")]
        parts += [
            f"How often the right kind is the likeliest of the brackets that close, {text}:",
            variants_table(numbers, {c[len("kind.") : c.index("@")]: (c, "{:.1%}".format) for c in columns}),
        ]
    return parts

"""Linear probes: which properties of a fable can be read off a model's vectors.

At the end of each sentence the grammar knows what is decided so far: the animal, the plot, the moral. A linear
classifier learns to predict it from the vectors of one half of the fables, and is scored on the other half (Alain and
Bengio 2016). Three baselines tell what a score is worth: the most frequent value, the same probe for shuffled labels,
and the same probe on the untrained model (Hewitt and Liang 2019).

Shapes: N sentence ends, T tokens, D width, C classes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from pellucid.errors import DataError
from pellucid.evaluation.estimate import Estimate, ratio
from pellucid.inspection.embed import Floats, layers_of_texts
from pellucid.languages.fables import Fables
from pellucid.languages.fables.reading import PROPERTIES
from pellucid.model.language_model import LanguageModel
from pellucid.tables import table
from pellucid.tokenizer import Tokenizer

Integers = NDArray[np.int64]

SENTENCE_END = re.compile(r"[.!?]\"?(?=\s)")
MOST_FREQUENT, SHUFFLED_LABELS = "most frequent", "labels dealt anew"
L2_PENALTY, MOST_ITERATIONS = 1e-3, 60
FEWEST_FABLES = 8


@dataclass(frozen=True)
class ProbeTable:
    """The accuracy of each probe, by property: the baselines, each layer of the model, then of the untrained one."""

    n_fables: int
    n_classes: dict[str, int]
    scores: dict[str, dict[str, Estimate]]

    def to_json(self) -> dict[str, object]:
        """The scores as `pellucid probe --json` prints them."""
        scores = {
            row: {name: {"accuracy": each.mean, "half_width": each.half_width} for name, each in cells.items()}
            for row, cells in self.scores.items()
        }
        return {"fables": self.n_fables, "classes": self.n_classes, "scores": scores}

    def table(self) -> str:
        """A table with a row for each probe and a column for each property."""
        rows = [("how many there are", *map(str, self.n_classes.values()))]
        rows += [
            (row, *(f"{100 * each.mean:.1f} ± {100 * each.half_width:.1f}" for each in cells.values()))
            for row, cells in self.scores.items()
        ]
        n_train = (self.n_fables + 1) // 2
        title = (
            "what is told so far, as a linear probe reads it off the vectors at sentence ends: % right "
            f"({n_train:,} fables to learn from, {self.n_fables - n_train:,} to be scored on)"
        )
        layers = [i for i, (row, *_) in enumerate(rows) if row.startswith("layer")]
        best = max(layers, key=lambda i: sum(each.mean for each in self.scores[rows[i][0]].values()))
        return table(("", *self.n_classes), rows, {best: "bold"}, above=[title, ""])


@dataclass(frozen=True)
class SentenceEnds:
    """Sentence ends as (fable, token), and the value of each property there, or None if it is not decided yet."""

    places: list[tuple[int, int]]
    told: dict[str, list[str | None]]


def probe(
    model: LanguageModel, untrained: LanguageModel, tokenizer: Tokenizer, fables: Fables, texts: Sequence[str]
) -> ProbeTable:
    """Probe each layer for each property. DataError for fewer than 8 fables, and for texts that are not fables."""
    if len(texts) < FEWEST_FABLES:
        fix = f"take at least {FEWEST_FABLES}; corpus.validation_fraction decides how many are held out"
        raise DataError("probe", f"{len(texts)} fables are too few to learn from and to be scored on", fix)
    ends = sentence_ends(tokenizer, fables, texts)
    of_model, of_untrained = (vectors_at(ends, each, tokenizer, texts) for each in (model, untrained))
    layers = {**of_model, **{f"untrained, {name}": x_ND for name, x_ND in of_untrained.items()}}
    fables_N = np.array([fable for fable, _ in ends.places])

    n_classes: dict[str, int] = {}
    scores: dict[str, dict[str, Estimate]] = {row: {} for row in (MOST_FREQUENT, SHUFFLED_LABELS, *layers)}
    for name, values_N in ends.told.items():
        decided_N = np.array([value is not None for value in values_N])
        values, labels_N = np.unique([value for value in values_N if value is not None], return_inverse=True)
        numbers_N = fables_N[decided_N]
        if len(set(numbers_N % 2)) < 2:  # in one half, no fable decides it within the context
            continue
        n_classes[name] = len(values)
        dealt_N = shuffled_by_fable(labels_N, numbers_N)
        scores[MOST_FREQUENT][name] = score_of_most_frequent(labels_N, numbers_N)
        scores[SHUFFLED_LABELS][name] = score_of_probe(of_model["layer last"][decided_N], dealt_N, numbers_N)
        for layer, x_ND in layers.items():
            scores[layer][name] = score_of_probe(x_ND[decided_N], labels_N, numbers_N)
    return ProbeTable(len(texts), n_classes, scores)


def sentence_ends(tokenizer: Tokenizer, fables: Fables, texts: Sequence[str]) -> SentenceEnds:
    """The sentence ends in the texts, except those inside a token."""
    places: list[tuple[int, int]] = []
    told: dict[str, list[str | None]] = {name: [] for name in PROPERTIES}
    for number, text in enumerate(texts):
        properties = fables.told_by(text)
        token_of = {end: t for t, end in enumerate(ends_of_tokens(tokenizer, text))}
        for end in (match.end() for match in SENTENCE_END.finditer(text) if match.end() in token_of):
            places.append((number, token_of[end]))
            for name in PROPERTIES:
                told_so_far = name in properties and properties[name].decided_at <= end
                told[name].append(properties[name].value if told_so_far else None)
    return SentenceEnds(places, told)


def ends_of_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The position in the text, in characters, at which each token ends."""
    n_bytes = np.cumsum(list(map(len, tokenizer.spelled(tokenizer.encode(text)))))
    written = text.encode()
    return [len(written[:n].decode(errors="ignore")) for n in n_bytes]


def vectors_at(
    ends: SentenceEnds, model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str]
) -> dict[str, Floats]:
    """The model's vectors (N, D) at the last token of each sentence, by layer."""
    tokens_of: dict[int, list[int]] = {}
    for number, token in ends.places:
        tokens_of.setdefault(number, []).append(token)
    texts_and_layers = enumerate(layers_of_texts(model, tokenizer, texts))
    by_text = [[x_TD[tokens_of[i]] for x_TD in layers] for i, layers in texts_and_layers if i in tokens_of]
    names = [*(f"layer {layer}" for layer in range(len(by_text[0]) - 1)), "layer last"]
    return {name: np.concatenate(vectors) for name, vectors in zip(names, zip(*by_text, strict=True), strict=True)}


def shuffled_by_fable(labels_N: Integers, fables_N: Integers) -> Integers:
    """The labels, shuffled among fables: a probe's accuracy on these does not come from the vectors."""
    _, first_N, fable_N = np.unique(fables_N, return_index=True, return_inverse=True)
    return np.random.default_rng(0).permutation(labels_N[first_N])[fable_N]


def score_of_most_frequent(labels_N: Integers, fables_N: Integers) -> Estimate:
    """The accuracy of always answering the most frequent label of the training half."""
    is_train_N = fables_N % 2 == 0
    answer = np.bincount(labels_N[is_train_N]).argmax()
    return score_of(labels_N[~is_train_N] == answer, fables_N[~is_train_N])


def score_of_probe(x_ND: Floats, labels_N: Integers, fables_N: Integers) -> Estimate:
    """The accuracy of a linear classifier, trained on the fables of even number, on the others."""
    is_train_N = fables_N % 2 == 0
    classifier = LinearClassifier(x_ND[is_train_N], labels_N[is_train_N], n_classes=int(labels_N.max()) + 1)
    return score_of(classifier.answers(x_ND[~is_train_N]) == labels_N[~is_train_N], fables_N[~is_train_N])


def score_of(hits_N: NDArray[np.bool_], fables_N: Integers) -> Estimate:
    """The accuracy. Sentences of one fable are alike, so the interval counts fables."""
    _, fable_N, n_F = np.unique(fables_N, return_inverse=True, return_counts=True)
    return ratio(np.bincount(fable_N, weights=hits_N).astype(np.float64), n_F.astype(np.float64))


class LinearClassifier:
    """Multinomial logistic regression: softmax(W x + b), fitted by L-BFGS with a small L2 penalty on W."""

    def __init__(self, x_ND: Floats, labels_N: Integers, n_classes: int) -> None:
        self._mean_D, self._scale_D = x_ND.mean(axis=0), x_ND.std(axis=0) + 1e-6
        self._weight_CD = nn.Parameter(torch.zeros(n_classes, x_ND.shape[1]))
        self._bias_C = nn.Parameter(torch.zeros(n_classes))
        scaled_ND, targets_N = self._scaled(x_ND), torch.from_numpy(labels_N)
        optimizer = torch.optim.LBFGS(
            [self._weight_CD, self._bias_C], max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def loss_with_gradient() -> float:
            optimizer.zero_grad()
            loss = F.cross_entropy(self._logits(scaled_ND), targets_N) + L2_PENALTY * self._weight_CD.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

        optimizer.step(loss_with_gradient)  # type: ignore[no-untyped-call]

    def answers(self, x_ND: Floats) -> Integers:
        """The most likely class of each vector."""
        with torch.no_grad():
            return self._logits(self._scaled(x_ND)).argmax(dim=-1).numpy()

    def _scaled(self, x_ND: Floats) -> Tensor:
        return torch.from_numpy((x_ND - self._mean_D) / self._scale_D)

    def _logits(self, scaled_ND: Tensor) -> Tensor:
        return F.linear(scaled_ND, self._weight_CD, self._bias_C)

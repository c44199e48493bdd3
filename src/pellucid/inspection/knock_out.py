"""Knock-outs: how much the loss of each skill rises without each head and sublayer.

The same held-out documents are read with the place intact and with its output set to zero (Michel et al. 2019). A mean
output instead (Wang et al. 2022) would need a sample of text; zeros are the same for every text.

Shapes: F documents, S skills, T positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from pellucid.corpora.drawn import Drawn
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.data.truth import nats_of, skill_characters
from pellucid.errors import ConfigError, DataError
from pellucid.evaluation.estimate import Estimate, mean_of
from pellucid.evaluation.loss import score
from pellucid.inspection.interventions import Place, check_places, nothing, place_name, places_of, replaced
from pellucid.languages.language import Language
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import Precision
from pellucid.tables import table
from pellucid.tokenizer import Tokenizer

Floats = NDArray[np.float64]

N_DOCUMENTS = 64
ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class HeldOut:
    """One held-out document as a model reads it.

    ids: end_of_text and T - 1 tokens. targets: the T tokens after each, including the end of the document.
    shares (T, S): of the skills in each target. floor (T,): its -log p under the truth.
    """

    text: str
    ids: list[int]
    targets: list[int]
    shares: Floats
    floor: Floats


@dataclass(frozen=True)
class Costs:
    """The cost of knocking some places out: the rise in nats per document of each skill, and of all together."""

    places: tuple[Place, ...]
    by_skill: dict[str, Estimate]
    all: Estimate

    @property
    def name(self) -> str:
        return " + ".join(map(place_name, self.places))

    def to_json(self) -> dict[str, object]:
        costs = {**self.by_skill, "all": self.all}
        return {
            "places": [list(place) for place in self.places],
            "name": self.name,
            "nats_per_fable": {skill: cost.to_json() for skill, cost in costs.items()},
        }


@dataclass(frozen=True)
class KnockOutTable:
    """Loss and floor of the intact model in nats per document, by skill, and the cost of each knock-out."""

    n_documents: int
    floor: dict[str, float]
    intact: dict[str, float]
    rows: list[Costs]

    def to_json(self) -> dict[str, object]:
        rows = [row.to_json() for row in self.rows]
        return {"fables": self.n_documents, "floor": self.floor, "intact": self.intact, "knocked_out": rows}

    def table(self) -> str:
        """A table with a row for each knock-out and a column for each skill."""
        known = [("the floor", self.floor), ("the intact model", self.intact)]
        rows = [(name, *map("{:.2f}".format, (*nats.values(), sum(nats.values())))) for name, nats in known]
        rows += [(row.name, *map(str, (*row.by_skill.values(), row.all))) for row in self.rows]
        title = f"what it costs each skill, nats per document (mean over {self.n_documents} held out ± 95 %)"
        return table(("knocked out", *self.floor, "all"), rows, above=[title])


def held_out_documents(corpus: Drawn, tokenizer: Tokenizer, context_length: int, n: int = N_DOCUMENTS) -> list[HeldOut]:
    """The first n held-out documents, with the truth, each cut to the context.

    DataError if there are fewer than two (no interval could be given) and more are asked for, or if the tokenizer does
    not cut text into words: then the truth about a token is not known.
    """
    if n < 1:
        raise ConfigError("fables", f"{n} are too few to measure on", "give 2 or more")
    if not tokenizer.has_words:
        fix = "take a run whose tokenizer was learned here"
        raise DataError("the tokenizer", "its tokens reach across words, so the truth about them is not known", fix)
    pieces = islice(corpus.pieces("validation"), n)  # each is a document
    documents = [_read(corpus.language, tokenizer, piece.text, context_length) for piece in pieces]
    if len(documents) < min(n, 2):
        fix = "take a run with a larger corpus.validation_fraction"
        raise DataError("the corpus", f"documents held out: {len(documents)}, and an interval needs two", fix)
    return documents


def _read(language: Language, tokenizer: Tokenizer, text: str, context_length: int) -> HeldOut:
    ids = [tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text][: context_length + 1]
    n = len(ids) - 1
    characters = skill_characters(language, tokenizer, text)[:n].astype(float)
    floor = np.array(nats_of(language, tokenizer, text)[:n])
    return HeldOut(text, ids[:-1], ids[1:], characters / characters.sum(axis=1, keepdims=True), floor)


def loss_by_skill(model: Decoder, documents: Sequence[HeldOut], knock_out: Sequence[Place] = ()) -> Floats:
    """The model's nats on each document, by skill (F, S), with these places knocked out.

    ConfigError for a place that does not exist.
    """
    check_places(model, knock_out, "knock_out")
    precision = Precision(model.embeddings.embedding_VD.device, torch.float32)
    with replaced(model, {place: nothing(place, model) for place in knock_out}):
        scores = score(model, _batches(documents), precision)
    nats_F = [scores.nats[scores.places == number] for number in range(len(documents))]
    return np.array([nats_T @ document.shares for nats_T, document in zip(nats_F, documents, strict=True)])


def _batches(documents: Sequence[HeldOut]) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
    """Batches of about equal length, which need little padding, and the number of its document at each place."""
    by_length = sorted(range(len(documents)), key=lambda number: len(documents[number].ids))
    for first in range(0, len(documents), ROWS_AT_ONCE):
        numbers = by_length[first : first + ROWS_AT_ONCE]
        inputs = pad_sequence([torch.tensor(documents[i].ids) for i in numbers], batch_first=True)
        targets = pad_sequence([torch.tensor(documents[i].targets) for i in numbers], True, IGNORE_INDEX)
        yield Batch(inputs, targets), np.broadcast_to(np.array(numbers)[:, None], inputs.shape)


def knock_out_table(
    model: Decoder,
    documents: Sequence[HeldOut],
    skills: Sequence[str],
    knock_outs: Sequence[Sequence[Place]] | None = None,
) -> KnockOutTable:
    """Knock out the places of each entry together; by default every head and sublayer alone."""
    if knock_outs is None:
        knock_outs = [[place] for place in places_of(model)]
    intact_FS = loss_by_skill(model, documents)
    floor_S = np.mean([document.floor @ document.shares for document in documents], axis=0)
    return KnockOutTable(
        n_documents=len(documents),
        floor=dict(zip(skills, floor_S.tolist(), strict=True)),
        intact=dict(zip(skills, intact_FS.mean(axis=0).tolist(), strict=True)),
        rows=[costs(intact_FS, loss_by_skill(model, documents, places), skills, places) for places in knock_outs],
    )


def costs(intact_FS: Floats, without_FS: Floats, skills: Sequence[str], places: Sequence[Place]) -> Costs:
    """The costs as differences paired by document, so that a document's own difficulty does not widen the interval."""
    difference_FS = without_FS - intact_FS
    by_skill = {skill: mean_of(difference_F) for skill, difference_F in zip(skills, difference_FS.T, strict=True)}
    return Costs(tuple(places), by_skill, mean_of(difference_FS.sum(axis=1)))

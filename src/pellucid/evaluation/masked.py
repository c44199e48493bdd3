"""How well a model fills gaps: held-out documents with one token hidden at a time, each beside its exact truth.

With one gap, p(token | both sides) is known (`data/both_sides.py`), and so is the least possible loss. With several, as
in training, what stands in the other gaps would have to be summed over.

Shapes: N tokens of a document, which are its places and the rows in which one of them is hidden each.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from pellucid.config.data import CorpusConfig
from pellucid.config.gaps import MASK
from pellucid.data.batches import IGNORE_INDEX, Batch
from pellucid.data.both_sides import truth_from_both_sides
from pellucid.data.prepared import PreparedData
from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError
from pellucid.evaluation.loss import Evaluation, evaluation_of, score
from pellucid.evaluation.skills import skill_table
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision

MOST_TOKENS = 20_000  # their truth takes seconds, in some languages minutes
TOKENS_AT_ONCE = 8192


class MaskedEvaluation(Evaluation):
    """Nats spent on hidden tokens, one at a time. Their sum is no −ln p of a text: a bound for such has no meaning."""

    @property
    def chance(self) -> None:
        """A score below the floor proves nothing here."""
        return None


def evaluate_masked(
    data: PreparedData,
    model: LanguageModel,
    precision: Precision,
    corpus: CorpusConfig,
    max_tokens: int | None = None,
    world: World = ALONE,
) -> MaskedEvaluation:
    """Hides each token of the first held-out documents, of about `max_tokens` or MOST_TOKENS.

    Their truth is known if the corpus is of a language. DataError if no document fits into the context, or if the
    corpus has changed since its tokens were made.
    """
    file, mask_id = data.validation, data.tokenizer.control_id(MASK)
    n = int(np.searchsorted(file.boundaries, min(max_tokens or MOST_TOKENS, MOST_TOKENS))) + 1
    boundaries = file.boundaries[: max(n, 2)]
    scores = score(model, one_hidden_each(file, boundaries, mask_id, model.context_length), precision, world)
    truth = truth_from_both_sides(data, corpus, boundaries)
    found = evaluation_of(scores, file, data.tokenizer, truth)
    n_documents = int((np.diff(boundaries) <= model.context_length).sum())
    skills = truth and skill_table(truth, scores.places, scores.nats, scores.hits, n_documents)
    return MaskedEvaluation(**{**vars(found), "n_bytes": 0, "impossible": None, "skills": skills})


def one_hidden_each(
    file: TokenFile, boundaries: NDArray[np.int64], mask_id: int, context_length: int
) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
    """Each document that fits into the context, once with each of its tokens hidden; and the places before these.

    A batch has TOKENS_AT_ONCE tokens at most, or one row: all rows of a long document would not fit into memory.
    """
    fits = np.diff(boundaries) <= context_length
    if not fits.any():
        what = f"each of the first held-out documents is longer than the context of {context_length} tokens"
        raise DataError("model.context_length", what, "raise it")
    for start, end in zip(boundaries[:-1][fits], boundaries[1:][fits], strict=True):
        document = torch.from_numpy(file.tokens[start:end].astype(np.int64))
        n = len(document) - 1
        n_at_once = max(1, TOKENS_AT_ONCE // (n + 1))
        for first in range(1, n + 1, n_at_once):
            hidden = torch.arange(first, min(first + n_at_once, n + 1))
            is_hidden = hidden[:, None] == torch.arange(n + 1)
            inputs = document.expand(len(hidden), -1)
            batch = Batch(inputs.masked_fill(is_hidden, mask_id), inputs.masked_fill(~is_hidden, IGNORE_INDEX))
            yield batch, np.broadcast_to(np.arange(start - 1, end - 1), inputs.shape)

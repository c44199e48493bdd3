"""From a config, prepared data and a model to its evaluation."""

from __future__ import annotations

from pellucid.config.run import RunConfig
from pellucid.data.batches import evaluation_batches
from pellucid.data.build import PreparedData
from pellucid.evaluation.loss import Evaluation, evaluation_of, score
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import Precision


def evaluate(
    config: RunConfig, data: PreparedData, model: Decoder, precision: Precision, max_tokens: int | None = None
) -> Evaluation:
    """Scores the whole validation part, or about `max_tokens` of it.

    Documents are scored from their own start where rows are packed so, and where the truth is known: the floor is the
    probability of whole documents.
    """
    batches = evaluation_batches(
        data.validation,
        model.context_length,
        config.train.batch_size,
        from_document_starts=data.truth is not None or config.data.packing == "documents",
        max_tokens=max_tokens,
    )
    return evaluation_of(score(model, batches, precision), data.validation, data.tokenizer, data.truth)

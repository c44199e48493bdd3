"""From a config, prepared data and a model to its evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pellucid.checkpoint.build import TrainedModel
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import KnownCorpus, Piece
from pellucid.data.batches import evaluation_batches
from pellucid.data.build import PreparedData, prepare_data
from pellucid.errors import CheckpointError
from pellucid.evaluation.attention_maps import attention_maps
from pellucid.evaluation.explain import explain, validation_document
from pellucid.evaluation.explanation import Explanation
from pellucid.evaluation.loss import Evaluation, evaluation_of, score
from pellucid.evaluation.trace import trace_text
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


def evaluate_run(trained: TrainedModel, precision: Precision, data_root: Path, where: str) -> Evaluation:
    """Scores a trained model on the validation part of its corpus, prepared in `data_root` if it is not there.

    CheckpointError, at `where`, if the text has changed so that its tokens are others now.
    """
    data = prepare_data(trained.config, data_root, progress=True)
    if data.tokenizer.to_json() != trained.tokenizer.to_json():
        what = "its corpus has changed: the tokenizer that is learned from it now is not the one of these weights"
        raise CheckpointError(where, what, "bring the text back as it was, or train anew")
    return evaluate(trained.config, data, trained.decoder, precision)


def explain_run(
    trained: TrainedModel, prompt: str | None, *, number: int, n_candidates: int, attention: str | None = None
) -> Explanation:
    """Explains a prompt or, without one, the number-th document held out, from 1.

    attention: of which heads the maps are shown, "all" or LAYER.HEAD. A prompt needs no text files, which a run copied
    to another machine lacks.
    """
    config, is_fables = trained.config.corpus, trained.config.corpus.type == "fables"
    decoder, tokenizer = trained.decoder, trained.tokenizer
    corpus = build_corpus(config) if prompt is None or is_fables else None
    if prompt is not None:
        piece, source = Piece(prompt, ends_document=False), "a prompt"
    else:
        assert corpus is not None
        piece = validation_document(corpus, number, tokenizer, decoder.context_length)
        source = f"held-out {'fable' if is_fables else 'document'} {number}"
    explanation = explain(
        decoder,
        tokenizer,
        piece,
        corpus if isinstance(corpus, KnownCorpus) else None,
        context_length=decoder.context_length,
        n_candidates=n_candidates,
    )
    maps = attention_maps(trace_text(decoder, tokenizer, explanation.text), attention) if attention else None
    model = f"{trained.config.name}, step {trained.step:,}"
    return replace(explanation, attention=maps, model=model, source=source)
